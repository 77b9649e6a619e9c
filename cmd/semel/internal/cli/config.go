package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "The worker's settings: print, validate", "", a.configPrint(), a.configValidate())
}

func (a *app) configPrint() *cobra.Command {
	w := config.Default()
	c := &cobra.Command{
		Use: "print", Short: "Print the settings that semel work would use, as YAML", Args: noArgs,
		Example:     "  semel config print --config worker.yaml > full.yaml",
		Annotations: map[string]string{"settings": "worker"},
		RunE: func(*cobra.Command, []string) error {
			w.Command = a.argv(nil, &w)
			if hidden := w.Redact(); len(hidden) > 0 {
				a.p.Notef("left out: the password or token in %s", join(hidden))
			}
			m, err := w.Map()
			if err != nil {
				return err
			}
			if len(a.applied.Aliases) > 0 {
				m["aliases"] = a.applied.Aliases
			}
			return a.p.Object(m, func(out io.Writer) error {
				for _, u := range a.applied.Aliases {
					if _, err := fmt.Fprintf(out, "# %s says --%s\n", u.Var, u.Setting); err != nil {
						return err
					}
				}
				enc := yaml.NewEncoder(out)
				enc.SetIndent(2)
				if err := enc.Encode(w); err != nil {
					return fmt.Errorf("print settings: %w", err)
				}
				return enc.Close()
			})
		},
	}
	config.Bind(c.Flags(), &w)
	return c
}

func (a *app) configValidate() *cobra.Command {
	w := config.Default()
	c := &cobra.Command{
		Use: "validate", Short: "Check the settings without opening anything", Args: noArgs,
		Example:     "  semel config validate --config worker.yaml",
		Annotations: map[string]string{"settings": "worker"},
		RunE: func(*cobra.Command, []string) error {
			w.Command = a.argv(nil, &w)
			if err := w.Check(); err != nil {
				return err
			}
			return a.p.Object(map[string]bool{"valid": true}, func(out io.Writer) error {
				_, err := fmt.Fprintln(out, "the settings are valid")
				return err
			})
		},
	}
	config.Bind(c.Flags(), &w)
	return c
}

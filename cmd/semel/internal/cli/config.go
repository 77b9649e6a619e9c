package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
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
			var settings bytes.Buffer
			enc := yaml.NewEncoder(&settings)
			enc.SetIndent(2)
			if err := errors.Join(enc.Encode(w), enc.Close()); err != nil {
				return fmt.Errorf("print settings: %w", err)
			}
			return a.p.Object(m, func(b *strings.Builder) {
				for _, u := range a.applied.Aliases {
					fmt.Fprintf(b, "# %s says --%s\n", u.Var, u.Setting)
				}
				b.Write(settings.Bytes())
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
			return a.p.Line(map[string]bool{"valid": true}, "the settings are valid")
		},
	}
	config.Bind(c.Flags(), &w)
	return c
}

// origin is where an effective setting comes from.
type origin struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// variable is an alias of the environment.
type variable struct {
	Variable string `json:"variable"`
	Setting  string `json:"setting"`
	Value    string `json:"value,omitempty"`
	Used     bool   `json:"used"`
}

func (a *app) envCommand() *cobra.Command {
	w := config.Default()
	c := &cobra.Command{
		Use: "env", Short: "Where queue, store, region and the other settings come from", Args: noArgs,
		Long: `env prints the settings that are not defaults and where each comes from, the region and profile that the AWS SDK would
use, and the environment variables of other workers that set semel's settings. It calls no service.`,
		Example:     "  semel env\n  set -a; . ./.env; semel env -o json",
		Annotations: map[string]string{"settings": "worker"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.env(cmd, w)
		},
	}
	config.Bind(c.Flags(), &w)
	return c
}

func (a *app) env(cmd *cobra.Command, w config.Work) error {
	_ = w.Redact()
	settings, err := w.Map()
	if err != nil {
		return err
	}
	var found []origin
	for _, name := range config.Keys() {
		if from := a.applied.Origin[name]; from != "" {
			found = append(found, origin{name, fmt.Sprint(settings[name]), from})
		}
	}
	if from := a.applied.Origin["log-level"]; from != "" {
		found = append(found, origin{"log-level", a.logLevel, from})
	}
	for _, place := range []struct{ setting, raw string }{{"queue", w.Queue}, {"store", w.Store}} {
		if !open.OnAWS(place.raw) {
			continue
		}
		at, err := open.Locate(cmd.Context(), place.setting, place.raw)
		if err != nil {
			return err
		}
		for _, s := range at {
			if from := a.applied.Origin[s.Name]; from != "" && s.From == "URL" {
				s.From = from // the URL was given it
			}
			found = append(found, origin{place.setting + " " + s.Name, s.Value, s.From})
		}
	}
	used := map[string]bool{}
	for _, u := range a.applied.Aliases {
		used[u.Var] = true
	}
	var all []variable
	for _, al := range config.Aliases() {
		all = append(all, variable{al.Var, al.Setting, open.Redact(os.Getenv(al.Var)), used[al.Var]})
	}
	return a.p.Object(map[string]any{"settings": found, "variables": all}, func(b *strings.Builder) {
		for _, s := range found {
			fmt.Fprintf(b, "%-20s %s (%s)\n", s.Name, s.Value, s.From)
		}
		for _, v := range all {
			state := "not set"
			switch {
			case v.Used:
				state = v.Value
			case v.Value != "":
				state = v.Value + ", not used"
			}
			fmt.Fprintf(b, "%-24s --%-14s %s\n", v.Variable, v.Setting, state)
		}
	})
}

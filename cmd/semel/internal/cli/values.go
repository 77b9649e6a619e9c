package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// The values of flags that take one of a few words: what is checked is what a shell completes.
var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
	guards     = []string{"off", "on", "both"}
)

// fixed says which values a flag takes, for the completion. Those that end with : or / go on.
func fixed(fs *pflag.FlagSet, name string, values ...string) {
	_ = fs.SetAnnotation(name, config.ValuesAnnotation, values) // the flag exists
}

// choice refuses a value that a flag does not take.
func choice(flag, value string, known []string) error {
	if slices.Contains(known, value) {
		return nil
	}
	err := output.Usage("--%s %q is unknown (known: %s)", flag, value, join(known))
	if meant := nearest.Name(value, known, 4); meant != "" {
		return err.WithHint("--%s %s", flag, meant)
	}
	return err
}

// completions registers the values of all flags that have fixed ones.
func completions(c *cobra.Command) {
	add := func(f *pflag.Flag) {
		values := f.Annotations[config.ValuesAnnotation]
		if len(values) == 0 {
			return
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return completed(values)
		}) // it fails for a flag that has one
	}
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		completions(sub)
	}
}

// completed are values for a shell; no space follows where a value goes on.
func completed(values []string) ([]string, cobra.ShellCompDirective) {
	d := cobra.ShellCompDirectiveNoFileComp
	if slices.ContainsFunc(values, func(v string) bool {
		return strings.HasSuffix(v, ":") || strings.HasSuffix(v, "/") || strings.HasSuffix(v, "=")
	}) {
		d |= cobra.ShellCompDirectiveNoSpace
	}
	return values, d
}

// oneOf completes arguments of which each may be given once.
func oneOf(values func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		left := slices.DeleteFunc(slices.Clone(values()), func(v string) bool { return slices.Contains(given, v) })
		return completed(left)
	}
}

// pairs reads the values NAME=VALUE of a flag that may be repeated.
func pairs(flag string, all []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range all {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, output.Usage("--%s %q is not NAME=VALUE", flag, kv)
		}
		out[name] = value
	}
	return out, nil
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Source says where settings come from besides flags.
type Source struct {
	// File is the path of the YAML file, "" = none.
	File string
	// Environ is the environment; nil = the process's.
	Environ []string
	// Known are names beside the worker's that may appear in the environment (flags of other commands).
	Known []string
	// Worker: the command takes every setting of the worker. Other commands take those that mean the same to all: a
	// limit of deliveries is not a limit of lines.
	Worker bool
}

// shared are the settings of the worker that other commands take from environment and file, too.
var shared = []string{"queue", "store", "consumer", "visibility", "retention"}

// takes reports whether the command takes a flag's value from environment and file.
func (s Source) takes(name string) bool {
	return s.Worker || slices.Contains(shared, name) || !slices.Contains(Keys(), name)
}

// Apply sets every flag that was not given on the command line from the environment, else from the file. Names of the
// worker's settings that the command has no flag for are checked and otherwise left alone, so that one file serves all
// commands. It returns the values of settings without a flag.
func Apply(flags *pflag.FlagSet, src Source) (command []string, err error) {
	ko := koanf.New("\x00")
	if src.File != "" {
		if err := ko.Load(file.Provider(src.File), yaml.Parser()); err != nil {
			return nil, fileError(src.File, err)
		}
		if err := strict(ko, src.File); err != nil {
			return nil, err
		}
	}
	fromFile := ko.Copy()
	environ := src.Environ
	if environ == nil {
		environ = os.Environ()
	}
	var unknown []string
	known := append(Keys(), src.Known...)
	opt := env.Opt{Prefix: "SEMEL_OPT_", EnvironFunc: func() []string { return environ }, TransformFunc: func(k, v string) (string, any) {
		name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(k, "SEMEL_OPT_"), "_", "-"))
		if !slices.Contains(known, name) && flags.Lookup(name) == nil || name == "command" {
			unknown = append(unknown, k)
			return "", nil
		}
		return name, v
	}}
	if err := ko.Load(env.Provider("\x00", opt), nil); err != nil {
		return nil, output.Usage("read the environment: %w", err)
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return nil, output.Usage("environment variable %s is no setting%s", unknown[0], suggestion(unknown[0], envNames())).
			WithHint("semel config print lists all; variables of handlers begin with SEMEL_ without OPT_")
	}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !ko.Exists(f.Name) || !src.takes(f.Name) {
			return
		}
		if err := flags.Set(f.Name, text(ko.Get(f.Name))); err != nil {
			where := "environment variable " + EnvName(f.Name)
			if fromFile.Exists(f.Name) && text(fromFile.Get(f.Name)) == text(ko.Get(f.Name)) {
				where = fmt.Sprintf("config file %s: key %s", src.File, f.Name)
			}
			errs = append(errs, output.Usage("%s: %w", where, unwrapFlag(err)))
		}
	})
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return ko.Strings("command"), nil
}

// strict refuses keys that are no settings, and values that are no scalars.
func strict(ko *koanf.Koanf, path string) error {
	known := Keys()
	for name, v := range ko.Raw() {
		if !slices.Contains(known, name) {
			return output.Usage("config file %s: unknown key %q%s", path, name, suggestion(name, known)).
				WithHint("semel config print lists all keys")
		}
		switch v.(type) {
		case map[string]any, nil:
			return output.Usage("config file %s: key %s has no value", path, name)
		case []any:
			if name != "command" && name != "retry" {
				return output.Usage("config file %s: key %s takes one value, not a list", path, name)
			}
		default:
			if name == "command" {
				return output.Usage("config file %s: key command takes a list", path).WithHint("command: [python3, handler.py]")
			}
		}
	}
	return nil
}

func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return output.Usage("config file %s does not exist", path)
	}
	return output.Usage("config file %s: %w", path, err)
}

// unwrapFlag drops pflag's own wording, which speaks of a flag that nobody typed.
func unwrapFlag(err error) error {
	if e := (*pflag.InvalidValueError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%q: %w", e.GetValue(), e.Unwrap())
	}
	return err
}

// text is a value as a flag takes it: a list of rules is one text.
func text(v any) string {
	if list, ok := v.([]any); ok {
		parts := make([]string, len(list))
		for i := range list {
			parts[i] = fmt.Sprint(list[i])
		}
		return strings.Join(parts, "; ")
	}
	return fmt.Sprint(v)
}

func envNames() []string {
	var out []string
	for _, k := range Keys() {
		out = append(out, EnvName(k))
	}
	return out
}

// suggestion is " (did you mean X?)" for the nearest name, or "".
func suggestion(name string, known []string) string {
	if best := nearest.Name(name, known, 4); best != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

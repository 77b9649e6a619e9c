package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
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
	// Places: the command makes queues and records of its own in the places that its flags name. What a worker is set up with
	// is not meant for it, and keeps out.
	Places bool
}

// shared are the settings of the worker that other commands take from environment and file, too.
var shared = []string{"queue", "store", "consumer", "visibility", "retention"}

// Own is the annotation of a flag that only has the name of a setting, and takes nothing from environment and file.
const Own = "semel_own"

// takes reports whether the command takes a flag's value from environment and file.
func (s Source) takes(name string) bool {
	if s.Places {
		return !slices.Contains(Keys(), name)
	}
	return s.Worker || slices.Contains(shared, name) || !slices.Contains(Keys(), name)
}

// Applied is what Apply found.
type Applied struct {
	// Command is the setting without a flag.
	Command []string
	// Aliases are the variables of other programs that had an effect, and Notes what had to be changed about them.
	Aliases []Used
	Notes   []string
	// Origin says where a setting came from, by its name: "flag", the variable, or the file. Defaults have none.
	Origin map[string]string
}

// Apply sets every flag that was not given on the command line from the environment, else from the file, else from an
// alias. Names of the worker's settings that the command has no flag for are checked and otherwise left alone, so that one
// file serves all commands. At last it adds --region and --profile to the URLs that need them.
func Apply(flags *pflag.FlagSet, src Source) (*Applied, error) {
	a := &Applied{Origin: map[string]string{}}
	flags.Visit(func(f *pflag.Flag) { a.Origin[f.Name] = "flag" })
	if err := a.applySources(flags, src); err != nil {
		return nil, err
	}
	if err := a.applyAliases(flags, src.environ(), src.takes); err != nil {
		return nil, err
	}
	return a, a.applyToURLs(flags)
}

// applySources sets flags from the environment and the file.
func (a *Applied) applySources(flags *pflag.FlagSet, src Source) error {
	file, err := readFile(src.File)
	if err != nil {
		return err
	}
	environ, err := src.settings(flags)
	if err != nil {
		return err
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || !src.takes(f.Name) || f.Annotations[Own] != nil {
			return
		}
		value, found := file[f.Name]
		where, said := fmt.Sprintf("config file %s: key %s", src.File, f.Name), src.File
		if v, ok := environ[f.Name]; ok {
			where, said = "environment variable "+EnvName(f.Name), EnvName(f.Name)
			value, found = v, true
		}
		if !found {
			return
		}
		if serr := flags.Set(f.Name, text(value)); serr != nil {
			err = output.Usage("%s: %w", where, unwrapFlag(serr))
		}
		a.Origin[f.Name] = said
	})
	argv, _ := file["command"].([]any)
	for _, arg := range argv {
		a.Command = append(a.Command, fmt.Sprint(arg))
	}
	return err
}

// readFile reads the settings of a YAML file; "" is none. It refuses keys that are no settings, and values that are no scalars.
func readFile(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, output.Usage("config file %s does not exist", path)
	}
	var file map[string]any
	if err == nil {
		err = yaml.Unmarshal(b, &file)
	}
	if err != nil {
		return nil, output.Usage("config file %s: %w", path, err)
	}
	known := Keys()
	for name, v := range file {
		if !slices.Contains(known, name) {
			return nil, output.Usage("config file %s: unknown key %q%s", path, name, suggestion(name, known)).
				WithHint("semel config print lists all keys")
		}
		switch v.(type) {
		case map[string]any, nil:
			return nil, output.Usage("config file %s: key %s has no value", path, name)
		case []any:
			if name != "command" && name != "retry" {
				return nil, output.Usage("config file %s: key %s takes one value, not a list", path, name)
			}
		default:
			if name == "command" {
				return nil, output.Usage("config file %s: key command takes a list", path).WithHint("command: [python3, handler.py]")
			}
		}
	}
	return file, nil
}

// settings are the SEMEL_OPT_ variables of the environment, by the names of their settings.
func (s Source) settings(flags *pflag.FlagSet) (map[string]string, error) {
	known := append(Keys(), s.Known...)
	out := map[string]string{}
	var unknown []string
	for _, e := range s.environ() {
		variable, value, _ := strings.Cut(e, "=")
		name, ours := strings.CutPrefix(variable, "SEMEL_OPT_")
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		switch {
		case !ours:
		case !slices.Contains(known, name) && flags.Lookup(name) == nil, name == "command":
			unknown = append(unknown, variable)
		default:
			out[name] = value
		}
	}
	if len(unknown) > 0 {
		return nil, output.Usage("environment variable %s is no setting%s", slices.Min(unknown), suggestion(slices.Min(unknown), envNames())).
			WithHint("semel config print lists all; variables of handlers begin with SEMEL_ without OPT_")
	}
	return out, nil
}

// applyToURLs adds --region and --profile to the URLs that are places on AWS.
func (a *Applied) applyToURLs(flags *pflag.FlagSet) error {
	for _, name := range []string{"queue", "store", "from", "to"} {
		f := flags.Lookup(name)
		if f == nil || !open.OnAWS(f.Value.String()) {
			continue
		}
		for _, param := range []string{"region", "profile"} {
			p := flags.Lookup(param)
			if p == nil || p.Value.String() == "" {
				continue
			}
			raw, err := open.AddParam(f.Value.String(), param, p.Value.String())
			if err == nil && a.Origin[param] == "flag" {
				err = open.CheckParam(name, raw, param, p.Value.String())
			}
			if err == nil {
				err = flags.Set(name, raw)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unwrapFlag drops pflag's own wording, which speaks of a flag that nobody typed.
func unwrapFlag(err error) error {
	if e := (*pflag.InvalidValueError)(nil); errors.As(err, &e) {
		if plain := plainValue(e); plain != nil {
			return plain
		}
		return fmt.Errorf("%q: %w", e.GetValue(), e.Unwrap())
	}
	return err
}

// PlainValue is what is wrong with the value of a flag, in words that name no function of Go.
func PlainValue(e *pflag.InvalidValueError) error {
	if plain := plainValue(e); plain != nil {
		return plain
	}
	return e.Unwrap()
}

// plainValue is PlainValue for what is Go's wording, nil for what is said in our own.
func plainValue(e *pflag.InvalidValueError) error {
	why, value := e.Unwrap(), e.GetValue()
	bad := (*strconv.NumError)(nil)
	kind := ""
	if f := e.GetFlag(); f != nil {
		kind = f.Value.Type()
	}
	switch {
	case errors.As(why, &bad) && errors.Is(bad.Err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", value)
	case errors.As(why, &bad) && kind == "bool":
		return fmt.Errorf("%q is neither true nor false", value)
	case errors.As(why, &bad) && strings.HasPrefix(kind, "float"):
		return fmt.Errorf("%q is not a number", value)
	case errors.As(why, &bad):
		return fmt.Errorf("%q is not a whole number", value)
	case kind == "duration" && strings.HasPrefix(why.Error(), "time: "):
		return fmt.Errorf("%q is not a duration (like 500ms, 30s, 15m)", value)
	}
	return nil
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

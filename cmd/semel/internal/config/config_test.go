package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"14d": 14 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "90s": 90 * time.Second, "0": 0,
		"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "0d": 0,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "d", "5", "-1s", "-1d", "1e300d", "soon", "1d soon", "NaNd"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestTextForms(t *testing.T) {
	for in, want := range map[string]string{
		"14d": "14d", "336h": "14d", "90s": "1m30s", "2m": "2m", "1h": "1h", "25h": "25h", "0s": "0s", "10m": "10m", "1h10m": "1h10m",
	} {
		var d Duration
		if err := d.Set(in); err != nil || d.String() != want {
			t.Errorf("%q: %q %v, want %q", in, d, err, want)
		}
		var again Duration
		if err := again.Set(d.String()); err != nil || again != d {
			t.Errorf("%q is not read again: %v %v", d, again, err)
		}
	}
	for in, want := range map[string]string{"64KiB": "64KiB", "65536": "64KiB", "1MB": "1000000", "1.5KiB": "1536", "7": "7", "2MiB": "2MiB", "0": "0"} {
		var n Size
		if err := n.Set(in); err != nil || n.String() != want {
			t.Errorf("%q: %q %v, want %q", in, n.String(), err, want)
		}
	}
	for _, in := range []string{"", "-1", "big", "1TBx", "9999999999GiB"} {
		var n Size
		if err := n.Set(in); err == nil {
			t.Errorf("%q: %v", in, n)
		}
	}
	var r Range
	for in, want := range map[string]string{"1s..5m": "1s..5m", "2s": "2s..2s"} {
		if err := r.Set(in); err != nil || r.String() != want {
			t.Errorf("%q: %q %v", in, r, err)
		}
	}
	for _, in := range []string{"", "5m..1s", "0s..1s", "1s..", "a..b"} {
		if err := r.Set(in); err == nil {
			t.Errorf("%q: %v", in, r)
		}
	}
}

// Every setting has a flag, a name in the environment, a key in the file: this is the one list of them.
func TestEverySettingEverywhere(t *testing.T) {
	w := Default()
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	Bind(fs, &w)
	for _, f := range fields(&w) {
		if f.name == "" {
			t.Fatalf("a setting has no name")
		}
		if !f.hidden && (fs.Lookup(f.name) == nil || f.help == "") {
			t.Errorf("%s has no flag or no help", f.name)
		}
	}
	b, err := yaml.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := yaml.Unmarshal(b, &keys); err != nil || len(keys) != len(Keys()) {
		t.Fatalf("%d keys in the file, %d settings: %v", len(keys), len(Keys()), err)
	}
	for _, k := range Keys() {
		if _, ok := keys[k]; !ok {
			t.Errorf("%s is not in the file", k)
		}
	}
	m, err := w.Map()
	if err != nil || len(m) != len(Keys()) || m["retention"] != "14d" {
		t.Errorf("%v %v", m, err)
	}
}

func TestPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.yaml")
	if err := os.WriteFile(path, []byte("concurrency: 4\nbatch: 4\nlimit: 4\ncommand: [a, b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	apply := func(worker bool, args ...string) (Work, []string) {
		w := Default()
		fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
		Bind(fs, &w)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		cmd, err := Apply(fs, Source{File: path, Environ: []string{"SEMEL_OPT_BATCH=5", "SEMEL_OPT_CONCURRENCY=5", "SEMEL_KEY=x"}, Worker: worker})
		if err != nil {
			t.Fatal(err)
		}
		return w, cmd.Command
	}
	w, cmd := apply(true, "--concurrency", "6")
	if w.Concurrency != 6 || w.Batch != 5 || w.Limit != 4 || w.MaxAttempts != 5 || strings.Join(cmd, " ") != "a b" {
		t.Errorf("%+v %v", w, cmd)
	}
	// A limit of deliveries is not a limit of lines: other commands do not take it.
	if w, _ := apply(false); w.Limit != 0 || w.Concurrency != Default().Concurrency {
		t.Errorf("%+v", w)
	}
}

func TestSuggestion(t *testing.T) {
	for name, want := range map[string]string{"concurency": "concurrency", "max-attempt": "max-attempts", "qqqqqqqqq": ""} {
		got := suggestion(name, Keys())
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestCompletedFormsAreForms: what a shell completes for a setting is refused by none of the checks.
func TestCompletedFormsAreForms(t *testing.T) {
	whole := func(form string) string {
		if strings.HasSuffix(form, ":") || strings.HasSuffix(form, "/") {
			return form + "x"
		}
		return form
	}
	checked := 0
	for _, f := range fields(&Work{}) {
		for _, form := range f.forms {
			w := Default()
			w.Queue, w.Exec, w.Key, w.GroupConcurrency = "sqlite:a.db", "true", "json:/id", 1
			for _, g := range fields(&w) {
				if g.name == f.name {
					g.value.SetString(whole(form))
				}
			}
			if err := w.Check(); err != nil {
				t.Errorf("--%s %s: %v", f.name, whole(form), err)
			}
			checked++
		}
		for _, v := range f.values {
			if f.value.Kind() != reflect.String {
				t.Errorf("%s has values and is no text: %s", f.name, v)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d forms", checked)
	}
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEnvTemplate: every line of deploy/aws/env.template is understood by semel env, as an own setting, as the variable of
// another worker or as what the SDK of AWS reads; none is there without an effect.
func TestEnvTemplate(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "aws", "env.template"))
	if err != nil {
		t.Fatal(err)
	}
	var set []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// As a shell reads it, so that nothing needs quotes.
		if !regexp.MustCompile(`^[A-Z][A-Z0-9_]*=[\w./:-]+$`).MatchString(line) {
			t.Errorf("line %q is no NAME=VALUE that a shell takes as it is", line)
		}
		set = append(set, line)
	}
	if len(set) < 10 {
		t.Fatalf("only %d settings found", len(set))
	}
	got := semelEnv(t, set)
	for _, line := range set {
		name, value, _ := strings.Cut(line, "=")
		if from, ok := got[name]; !ok {
			t.Errorf("%s has no effect", name)
		} else if name == "QUEUE_URL" || strings.HasPrefix(name, "SEMEL_OPT_") {
			if !strings.Contains(from, value) {
				t.Errorf("%s is understood as %q", line, from)
			}
		}
	}
	// The test sees a line that is not understood.
	if _, ok := semelEnv(t, append(set, "VISIBILITY_TIMEOUT=30"))["VISIBILITY_TIMEOUT"]; ok {
		t.Error("a variable that nobody reads is taken for a setting")
	}
}

// semelEnv is what semel env makes of an environment: values by the variables that they come from.
func semelEnv(t *testing.T, set []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(semelFolder(t), "semel"), "env", "-o", "json")
	cmd.Dir, cmd.Env = dir, append([]string{"HOME=" + dir, "AWS_EC2_METADATA_DISABLED=true"}, set...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("semel env: %v\n%s", err, &errs)
	}
	var said struct {
		Settings  []struct{ Name, Value, From string }
		Variables []struct {
			Variable, Value string
			Used            bool
		}
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	for _, s := range said.Settings {
		got[s.From] += s.Value
	}
	for _, v := range said.Variables {
		if v.Used {
			got[v.Variable] += v.Value
		}
	}
	return got
}

// semelFolder is a folder with the binary, for PATH: under the name semel the test binary is semel.
func semelFolder(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "semel")); err != nil {
		t.Fatal(err)
	}
	return dir
}

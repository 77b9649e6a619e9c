package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
)

// Wanted is a file that the user wants: with the settings of a worker (Env), or with the endpoint for jq.
type Wanted struct {
	Path string `json:"path"`
	Env  bool   `json:"env"`
}

// envHead is the first line of files with settings, by which they are known again.
const envHead = "# Written by semel lab up, removed by semel lab down."

// check refuses a path before anything is made: one that cannot be written, and a file that semel lab up did not write.
func (w *Wanted) check() (err error) {
	flag := "--outputs"
	if w.Env {
		flag = "--env"
	}
	if w.Path, err = filepath.Abs(w.Path); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	b, err := os.ReadFile(w.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err := os.OpenFile(w.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return output.Usage("%s: %w", flag, err).WithHint("%s with a file in a folder that is there and can be written", flag)
		}
		return errors.Join(f.Close(), os.Remove(w.Path))
	case err != nil:
		return output.Usage("%s: %w", flag, err).WithHint("%s with another file", flag)
	case !w.ours(b):
		return output.Usage("%s: %s is there, and not from semel lab up", flag, w.Path).WithHint("%s with another file, or move it away", flag)
	}
	f, err := os.OpenFile(w.Path, os.O_WRONLY, 0)
	if err != nil {
		return output.Usage("%s: %w", flag, err).WithHint("%s with another file", flag)
	}
	return f.Close()
}

// ours reports whether a file is from an earlier semel lab up.
func (w *Wanted) ours(b []byte) bool {
	if w.Env {
		return bytes.HasPrefix(b, []byte(envHead))
	}
	var o map[string]map[string]string
	return json.Unmarshal(b, &o) == nil && len(o) == 1 && len(o[stack]) == 1 && o[stack][endpoint] != ""
}

// The names in the outputs file are those that `cdk deploy --outputs-file` writes for the tutorial's stack.
const (
	stack    = "VisibilityDupStack"
	endpoint = "ApiEndpoint"
)

// write writes the file.
func (w *Wanted) write(s State) (File, error) {
	var text []byte
	if w.Env {
		text = envText(s.Vars)
	} else {
		b, err := json.MarshalIndent(map[string]map[string]string{stack: {endpoint: s.Endpoint}}, "", "  ")
		if err != nil {
			return File{}, fmt.Errorf("write %s: %w", w.Path, err)
		}
		text = append(b, '\n')
	}
	if err := os.WriteFile(w.Path, text, 0o600); err != nil {
		return File{}, fmt.Errorf("write the lab's settings: %w", err)
	}
	return File{w.Path, sum(text)}, nil
}

// envText is what a shell can source.
func envText(vars []Var) []byte {
	var b strings.Builder
	b.WriteString(envHead + "\n# source it, and a worker finds the lab's queue and records: semel work --simulate --until-empty\n")
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, words.Quote(v.Value))
	}
	return []byte(b.String())
}

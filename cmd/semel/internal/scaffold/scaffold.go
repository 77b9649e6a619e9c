// Package scaffold writes the first files of a worker: its settings, a handler, a test, and what deploys it.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed templates
var templates embed.FS

// language is what differs between the languages of handlers.
type language struct {
	// files maps the names of files to their templates.
	files map[string]string
	// Pipe is the command of semel work --pipe, Handler the file that a person edits.
	Pipe, Handler string
}

var languages = map[string]language{
	"python": {Pipe: "python3 handler.py", Handler: "handler.py", files: map[string]string{
		"handler.py": "handler.py.tmpl", "Dockerfile": "python.Dockerfile.tmpl"}},
	"node": {Pipe: "node handler.mjs", Handler: "handler.mjs", files: map[string]string{
		"handler.mjs": "handler.mjs.tmpl", "Dockerfile": "node.Dockerfile.tmpl"}},
	"go": {Pipe: "go run .", Handler: "main.go", files: map[string]string{
		"main.go": "main.go.tmpl", "go.mod": "go.mod.tmpl", "Dockerfile": "go.Dockerfile.tmpl"}},
	"shell": {Pipe: "sh handler.sh", Handler: "handler.sh", files: map[string]string{
		"handler.sh": "handler.sh.tmpl", "Dockerfile": "shell.Dockerfile.tmpl"}},
}

// common are the files of every language.
var common = map[string]string{
	"semel.yaml": "semel.yaml.tmpl", "schema.sql": "schema.sql.tmpl", "test.sh": "test.sh.tmpl", "compose.yaml": "compose.yaml.tmpl",
}

// Languages lists the languages of handlers, sorted.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

// Options say what is written.
type Options struct {
	// Dir is the folder. It is made if it does not exist.
	Dir string
	// Language is one of [Languages].
	Language string
	// Queue and Store are the URLs that the settings name.
	Queue, Store string
}

// ExistsError names files that exist: nothing was written.
type ExistsError struct{ Files []string }

func (e *ExistsError) Error() string { return fmt.Sprintf("%s exists", e.Files[0]) }

// Write writes the files, and returns their paths, sorted. It replaces no file: if one exists it writes none.
func Write(o Options) ([]string, error) {
	lang, ok := languages[o.Language]
	if !ok {
		return nil, fmt.Errorf("unknown language %q", o.Language)
	}
	files, err := render(o, lang)
	if err != nil {
		return nil, err
	}
	paths := slices.Sorted(maps.Keys(files))
	var there []string
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil {
			there = append(there, p)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for %s: %w", p, err)
		}
	}
	if len(there) > 0 {
		return nil, &ExistsError{there}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil { //nolint:gosec // source code, which colleagues and containers read
		return nil, fmt.Errorf("make %s: %w", o.Dir, err)
	}
	for _, p := range paths {
		if err := create(p, files[p]); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// render fills in the files of a language.
func render(o Options, lang language) (map[string][]byte, error) {
	fill := strings.NewReplacer("QUEUE_URL", strconv.Quote(o.Queue), "STORE_URL", strconv.Quote(o.Store), "PIPE_COMMAND", lang.Pipe, "HANDLER", lang.Handler)
	out := map[string][]byte{}
	for _, set := range []map[string]string{common, lang.files} {
		for name, file := range set {
			text, err := templates.ReadFile("templates/" + file)
			if err != nil {
				return nil, fmt.Errorf("read the template of %s: %w", name, err)
			}
			out[filepath.Join(o.Dir, name)] = []byte(fill.Replace(string(text)))
		}
	}
	return out, nil
}

// create writes a new file; one that was made meanwhile stays as it is.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // source code
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

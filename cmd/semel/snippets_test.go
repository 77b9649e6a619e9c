package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snippetImports are the packages that snippets use without an import of their own.
var snippetImports = map[string]string{
	"context": "context", "sql": "database/sql", "net": "net", "http": "net/http", "testing": "testing", "time": "time",
	"semel": root, "edgehttp": root + "/edge/http", "cache": root + "/cache", "key": root + "/key", "lock": root + "/lock", "memory": root + "/memory",
	"outbox": root + "/outbox", "steps": root + "/steps", "verify": root + "/semeltest/verify", "sqlite": root + "/adapters/sqlite",
}

const root = "github.com/semel-dev/semel"

// TestSnippetsCompile compiles every Go snippet of README.md and docs/guide.md. What a snippet takes from around it (ctx,
// store, a client) is declared in testdata/snippets/env.go; a snippet that is a whole program is built and run.
func TestSnippetsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	files := map[string]string{} // of the package → where the text is
	env, err := filepath.Abs("testdata/snippets/env.go")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(here, "internal", "snippets") // it is in the overlay alone
	files[filepath.Join(dir, "env.go")] = env
	fence := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	for _, page := range []string{"../../README.md", "../../docs/guide.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range fence.FindAllSubmatchIndex(text, -1) {
			line := bytes.Count(text[:at[2]], []byte("\n")) + 1
			name := fmt.Sprintf("%s_%d.go", strings.TrimSuffix(filepath.Base(page), ".md"), line)
			abs, err := filepath.Abs(page)
			if err != nil {
				t.Fatal(err)
			}
			src := string(text[at[2]:at[3]])
			if strings.HasPrefix(src, "package main") {
				runSnippet(t, name, src)
				continue
			}
			out, err := snippetFile(src, abs, line)
			if err != nil {
				t.Errorf("%s:%d: %v", page, line, err)
				continue
			}
			made := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(made, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
			files[filepath.Join(dir, name)] = made
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(at, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", at, "./internal/snippets").CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// snippetFile makes a file of a snippet: declarations as they are, statements in a function. Positions are those of the page.
func snippetFile(src, page string, line int) (string, error) {
	head := "package snippets\n"
	if _, err := parser.ParseFile(token.NewFileSet(), "", head+src, 0); err != nil {
		head = fmt.Sprintf("package snippets\nfunc _() error {\n//line %s:%d\n", page, line)
		var names []string
		f, err := parser.ParseFile(token.NewFileSet(), "", head+src+"\nreturn nil\n}\n", 0)
		if err != nil {
			return "", err
		}
		for _, st := range f.Decls[0].(*ast.FuncDecl).Body.List {
			if def, ok := st.(*ast.AssignStmt); ok && def.Tok == token.DEFINE {
				for _, l := range def.Lhs {
					names = append(names, l.(*ast.Ident).Name)
				}
			}
		}
		for _, name := range names {
			if name != "_" {
				src += "\n_ = " + name
			}
		}
		src += "\nreturn nil\n}\n"
	} else {
		head += fmt.Sprintf("//line %s:%d\n", page, line)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", head+src, 0)
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	imports := ""
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if path, ok := snippetImports[name]; ok {
			imports += fmt.Sprintf("import %s %q\n", name, path)
		}
	}
	return strings.Replace(head+src, "package snippets\n", "package snippets\n"+imports, 1), nil
}

// runSnippet builds a program, and runs it twice in one folder: what it prints is the same, because nothing happens again.
func runSnippet(t *testing.T, name, src string) {
	t.Helper()
	made := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(made, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, made).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
		return
	}
	folder := t.TempDir()
	for range 2 {
		c := exec.CommandContext(t.Context(), bin)
		c.Dir = folder
		if out, err := c.Output(); err != nil || string(out) != "charges: 1\n" {
			t.Errorf("%s prints %q, %v", name, out, err)
		}
	}
}

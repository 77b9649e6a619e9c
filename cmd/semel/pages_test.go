//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestPages runs the pages that are transcripts: docs/python.md and docs/recipes. A fenced block whose first line names a file
// (```python charge.py) is that file. In a console block a line "$ COMMAND" is run, further lines of it begin with "> ", and the
// lines that follow are what it prints to stdout; … stands for any text. All commands of a page run in one shell, in one folder.
//
// Pages that use postgres://postgres@localhost/shop get a database of their own in its place, pages with sqs:// the fakes of AWS,
// the ports 8080 to 8099 become free ones, and Go programs find the modules of the workspace.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	pages, err := filepath.Glob("../../docs/recipes/[a-z]*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d recipes: %v", len(pages), err)
	}
	for _, page := range append(pages, "../../docs/python.md") {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 120 && strings.Contains(page, "recipes") {
				t.Errorf("%s has %d lines, at most 120", page, n)
			}
			body, env := placeOfPage(t, string(text))
			for _, problem := range runPage(t, body, env) {
				t.Error(problem)
			}
		})
	}
}

var (
	pageDatabase = "postgres://postgres@localhost/shop"
	pagePort     = regexp.MustCompile(`\b80[89]\d\b`)
)

// placeOfPage gives a page the servers that it uses: its text with their addresses, and its environment.
func placeOfPage(t *testing.T, text string) (body string, env []string) {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env = append(os.Environ(), "PATH="+semelFolder(t)+":"+os.Getenv("PATH"), "PYTHONPATH="+filepath.Join(repo, "sdk", "python"),
		"PYTHONDONTWRITEBYTECODE=1", "GOWORK="+filepath.Join(repo, "go.work"))
	for _, program := range []string{"python3", "psql", "curl"} {
		if regexp.MustCompile(`(?m)^(\$|>) .*\b` + program + `\b`).MatchString(text) {
			server.Command(t, program, "the page uses it")
		}
	}
	if strings.Contains(text, pageDatabase) {
		created, drop, err := server.CreateDatabase(t.Context(), server.Shared(t, "postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := drop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		created, _, _ = strings.Cut(created, "?")
		text = strings.ReplaceAll(text, pageDatabase, created)
	}
	if strings.Contains(text, "sqs://") {
		srv := httptest.NewServer(newFakes())
		t.Cleanup(srv.Close)
		if exec.CommandContext(t.Context(), "python3", "-c", "import boto3").Run() != nil {
			server.LeaveOut(t, "boto3", "it is not installed (pip install boto3)")
		}
		e := &testscript.Env{WorkDir: t.TempDir()}
		awsEnv(e, srv.URL)
		env = append(env, e.Vars...)
	}
	ports := map[string]string{}
	return pagePort.ReplaceAllStringFunc(text, func(usual string) string {
		if ports[usual] == "" {
			port, err := server.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			ports[usual] = strconv.Itoa(port)
		}
		return ports[usual]
	}), env
}

// transcript is a command of a page, and what it prints.
type transcript struct{ command, want string }

var fencedBlock = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// parsePage takes the files and the commands out of a page.
func parsePage(text string) (files map[string]string, commands []transcript) {
	files = map[string]string{}
	for _, block := range fencedBlock.FindAllStringSubmatch(text, -1) {
		info := strings.Fields(block[1])
		switch {
		case len(info) == 2:
			files[info[1]] += block[2]
		case len(info) == 1 && info[0] == "console":
			for line := range strings.Lines(block[2]) {
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					commands = append(commands, transcript{command: command})
				} else if n := len(commands) - 1; n < 0 {
					continue
				} else if more, ok := strings.CutPrefix(line, "> "); ok {
					commands[n].command += more
				} else {
					commands[n].want += line
				}
			}
		}
	}
	return files, commands
}

// runPage runs a page, and returns where it prints something else than it says.
func runPage(t *testing.T, text string, env []string) (problems []string) {
	t.Helper()
	files, commands := parsePage(text)
	if len(commands) == 0 {
		return []string{"the page runs nothing: it needs a console block with a line that begins with $"}
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const mark = "\x1eend of a command "
	script := ""
	for _, c := range commands {
		script += c.command + "printf '" + mark + "%s\\n' $?\n"
	}
	if err := os.WriteFile(filepath.Join(dir, ".script"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, runErr := runScript(t, dir, env)
	parts := strings.Split(out, mark)
	for i, c := range commands {
		if i+1 >= len(parts) {
			problems = append(problems, fmt.Sprintf("$ %s ended the shell: %v", c.command, runErr))
			break
		}
		status, _, _ := strings.Cut(parts[i+1], "\n")
		got := parts[i]
		if i > 0 {
			_, got, _ = strings.Cut(got, "\n")
		}
		if status != "0" || !matches(got, c.want) {
			problems = append(problems, fmt.Sprintf("$ %sexits %s and prints\n%swant\n%s", c.command, status, got, c.want))
		}
	}
	if len(problems) > 0 {
		problems = append(problems, "stderr: "+errs)
	}
	return problems
}

// runScript runs .script of a folder, and kills what it left running. Its output goes to files: a program in the background would
// keep a pipe open.
func runScript(t *testing.T, dir string, env []string) (out, errs string, runErr error) {
	t.Helper()
	cmd := exec.Command("sh", ".script")
	cmd.Dir, cmd.Env = dir, env
	for name, to := range map[string]*io.Writer{".out": &cmd.Stdout, ".err": &cmd.Stderr} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		*to = f
	}
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	runErr = p.Wait()
	_ = process.SignalGroup(p.Pid(), syscall.SIGKILL)
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return text(".out"), text(".err"), runErr
}

// matches compares what a command printed with what the page shows, in which … stands for any text.
func matches(got, want string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// TestPagesAreCompared: a page that shows another output, or a command that fails, is found.
func TestPagesAreCompared(t *testing.T) {
	page := func(shown string) string {
		return "```sh greet.sh\necho \"hello $1\"\n```\n\n```console\n$ name=you\n$ sh greet.sh \\\n>   $name\n" + shown + "\n```\n"
	}
	for shown, fine := range map[string]bool{
		"hello you": true, "h… you": true, "hello me": false, "hello": false, "hello you\n$ false": false, "hello you\n$ exit 0": false,
		"hello you\n$ : >file": true,
	} {
		if got := runPage(t, page(shown), os.Environ()); (len(got) == 0) != fine {
			t.Errorf("%q: %q", shown, got)
		}
	}
	if files, _ := parsePage("```sh a\none\n```\n\n```sh a\ntwo\n```\n"); !slices.Equal([]string{files["a"]}, []string{"one\ntwo\n"}) {
		t.Errorf("a file in two blocks: %q", files)
	}
}

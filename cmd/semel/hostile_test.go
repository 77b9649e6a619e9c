package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/cli"
	"github.com/semel-dev/semel/driver"
)

// said is what a command printed.
type said struct {
	out, errs string
	code      int
}

// printed runs a command in this process.
func printed(args ...string) said {
	var out, errs bytes.Buffer
	code := cli.Main(args, strings.NewReader(""), &out, &errs)
	return said{out.String(), errs.String(), code}
}

// printedByChild runs a command in a process of its own: one that starts others, or must not end this one.
func printedByChild(t *testing.T, args ...string) said {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "semel") // testscript.Main goes by the name
	if err := os.Link(exe, named); err != nil {  // another file system
		b, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(named, b, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, named, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return said{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// allCommands lists all that can be run, as the help does.
func allCommands(path ...string) (out []string) {
	help := printed(append(slices.Clone(path), "--help")...).out
	_, list, ok := strings.Cut(help, "Available Commands:\n")
	if !ok || len(path) == 1 && path[0] == "sqs" {
		out = append(out, strings.Join(path, " "))
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); ok && len(f) > 0 && f[0] != "help" && f[0] != "completion" {
			out = append(out, allCommands(append(slices.Clone(path), f[0])...)...)
		}
	}
	return out
}

// hostile holds what a terminal obeys: CSI in two spellings, OSC, a carriage return, and what turns text around.
const hostile = "\x1b[2J\u009b31m\x1b]0;pwned\a\r\u202egnp.exe\u2066\u200b\u2028"

// visible reports what would reach the terminal.
func visible(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r == '\n' || r == '\t' || r == utf8.RuneError && strings.HasPrefix(text[i:], "\uFFFD") {
			continue
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == utf8.RuneError {
			t.Errorf("%s prints %U in %q", what, r, text[max(0, i-40):min(len(text), i+20)])
			return
		}
	}
}

// leave makes a database with hostile texts wherever a message, a handler or an operator can leave one: a completed key, a
// dead letter, a parked key, a waiting message. It returns the queue's URL.
func leave(t *testing.T, dir string) (url string) {
	t.Helper()
	path := filepath.Join(dir, "h.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	q := db.Queue("orders\u202e\u009b")
	headers := map[string]string{"x-" + hostile: hostile}
	if err := q.Send(t.Context(), semel.Message{ID: "ok" + hostile, Body: []byte("ok" + hostile), Headers: headers},
		semel.Message{ID: "dead" + hostile, Body: []byte("dead" + hostile), Headers: headers},
		semel.Message{ID: "doubt" + hostile, Body: []byte("doubt" + hostile), Headers: headers}); err != nil {
		t.Fatal(err)
	}
	c, err := semel.New(semel.Config{
		Queue: q, Store: db.Store(), Consumer: "c" + hostile, Tenant: func(*semel.Message) string { return "t" + hostile },
		Takeover: semel.Once, Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			a.SetResult([]byte(hostile))
			switch err := errors.New("reason " + hostile); {
			case strings.HasPrefix(a.ID, "dead"):
				return semel.Permanent(semel.NotApplied(err))
			case strings.HasPrefix(a.ID, "doubt"):
				return err
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for {
		if st, err := q.Stats(t.Context()); err != nil || st.Empty() {
			break
		}
		time.Sleep(5 * time.Millisecond) // the pause between two looks
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := q.Send(t.Context(), semel.Message{ID: "waits" + hostile, Body: []byte(hostile), Headers: headers}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} { // they differ, so that warnings name all texts
		err := db.Store().ReportWorker(t.Context(), driver.WorkerReport{
			ID: id + hostile, Name: "w" + id + hostile, Queue: "orders\u202e\u009b", Consumer: "c" + hostile, Version: hostile, Seen: time.Now(),
			Settings: map[string]string{hostile: id + hostile}, Paused: hostile, Holds: []driver.WorkerHold{{Tenant: hostile, Key: hostile}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return "sqlite:" + path + "?queue=orders%E2%80%AE%C2%9B"
}

// TestHostileTextsReachNoTerminal gives every command that prints other people's texts such as a terminal would obey.
func TestHostileTextsReachNoTerminal(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	url := leave(t, dir)
	var found []struct{ ID string }
	if err := json.Unmarshal([]byte(printed("dlq", "ls", "--queue", url, "-o", "json").out), &found); err != nil || len(found) == 0 {
		t.Fatalf("no dead letter: %v", err)
	}
	deadLetter := found[0].ID
	// A key has its control characters escaped when it is taken from a message; all else stays.
	clean := strings.NewReplacer("\x1b", `\x1b`, "\a", `\x07`, "\r", `\x0d`).Replace(hostile)
	line, _ := json.Marshal(map[string]string{"key": "nobody's" + hostile, "consumer": "c" + hostile})
	event, _ := json.Marshal(map[string]any{
		"at": time.Now(), "kind": "ended", "worker": hostile, "consumer": "c" + hostile, "tenant": "t" + hostile,
		"key": "ok" + clean, "message_id": hostile, "error": hostile, "reason": hostile, "route": hostile,
	})
	for name, b := range map[string][]byte{"effects.jsonl": line, "events.jsonl": event, "bad.jsonl": []byte("{" + hostile)} {
		if err := os.WriteFile(name, append(b, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key, consumer, tenant := "ok"+clean, "c"+hostile, "t"+hostile
	record := []string{"--store", url, "--consumer", consumer, "--tenant", tenant}
	with := func(args []string, more ...string) []string { return append(slices.Clone(args), more...) }
	shell := `printf '\033[2J\302\2331m\342\200\256 hostile\r stderr\n' >&2; printf '\033[2J'; exit 65`
	rows := []struct {
		args  []string
		child bool
		// shows: the text is there, escaped.
		shows string
	}{
		{args: with([]string{"records", "ls"}, record...), shows: `ok\x1b[2J\u009b31m`},
		{args: with([]string{"records", "get", key}, record...), shows: `consumer     c\x1b[2J`},
		{args: with([]string{"records", "explain", key, "--events", "events.jsonl"}, record...), shows: `of consumer c\x1b[2J`},
		{args: with([]string{"records", "get", "none" + hostile}, record...), shows: `\x1b[2J`},
		{args: with([]string{"records", "sweep", "--dry-run"}, "--store", url)},
		{args: []string{"dlq", "ls", "--queue", url}, shows: `\u202egnp.exe`},
		{args: []string{"dlq", "show", deadLetter, "--queue", url}, shows: `reason \x1b[2J`},
		{args: []string{"dlq", "show", "none" + hostile, "--queue", url}},
		{args: []string{"dlq", "redrive", deadLetter, "--queue", url, "--dry-run"}},
		{args: []string{"dlq", "discard", deadLetter, "--queue", url, "--dry-run"}},
		{args: []string{"dlq", "export", "--queue", url}, shows: `\u202e`},
		{args: []string{"dlq", "import", "bad.jsonl", "--queue", url}},
		{args: []string{"dlq", "edit", deadLetter, "--queue", url}},
		{args: []string{"queue", "ls", "--queue", url}, shows: `orders\u202e\u009b`},
		{args: []string{"queue", "stats", "--queue", url}},
		{args: []string{"queue", "peek", "--queue", url}, shows: `waits\x1b[2J`},
		{args: []string{"queue", "create", "--queue", url}},
		{args: []string{"queue", "purge", "--queue", url, "--dry-run"}},
		{args: []string{"audit", "--store", url, "--effects", "effects.jsonl", "--min-age", "0s"}},
		{args: []string{"audit", "--store", url, "--effects", "bad.jsonl"}},
		{args: []string{"doctor", "--queue", url}},
		{args: []string{"workers", "--store", url}, shows: `w1\x1b[2J`},
		{args: []string{"top", "--queue", url, "--consumer", consumer, "--once"}, shows: `orders`},
		{args: []string{"advise", "--queue", url}},
		{args: []string{"send", "bad.jsonl", "--queue", url}},
		{args: []string{"config", "print", "--queue", url, "--exec", hostile}},
		{args: []string{"config", "validate", "--queue", url, "--exec", hostile, "--takeover", hostile}, shows: `\x1b`},
		{args: []string{"env", "--queue", url, "--exec", hostile}},
		{args: []string{"migrate", "--store", url}},
		{args: []string{"records", "resolve", "doubt" + clean, "--as", "failed", "--by", hostile, "--yes", "--store", url, "--consumer", consumer, "--tenant", tenant}},
		{args: []string{"records", "release", key, "--by", hostile, "--yes", "--store", url, "--consumer", consumer, "--tenant", tenant}},
		{args: []string{"audit", "--log", "--store", url, "--consumer", consumer}, shows: `\x1b[2J`},
		{args: []string{"work", "--queue", url, "-v", "--until-empty", "--exec", shell, "--consumer", "w" + hostile, "--max-attempts", "1"}, child: true, shows: `\x1b[2J\u009b1m\u202e hostile\x0d stderr`},
		{args: []string{"dlq", "ls", "--queue", url}, shows: `\u202e hostile`},
		{args: []string{"lab", "attack", "--exec", strings.ReplaceAll(shell, "exit 65", "exit 1")}, child: true, shows: `\x1b[2J\u009b1m`},
		{args: []string{"lab", "run", hostile}, shows: `\x1b`},
		{args: []string{"lab", "validate", hostile}},
		{args: []string{"records", "reopen", key, "--reason", hostile, "--by", hostile, "--yes", "--store", url, "--consumer", consumer, "--tenant", tenant}},
		{args: []string{"records", "erase", key, "--reason", hostile, "--by", hostile, "--yes", "--store", url, "--consumer", consumer, "--tenant", tenant}},
		{args: []string{"records", "erase", "doubt" + clean, "--reason", hostile, "--by", hostile, "--yes", "--store", url, "--consumer", consumer, "--tenant", tenant}},
		{args: []string{"records", hostile}, shows: `\x1b`},
	}
	ran := map[string]bool{}
	for _, r := range rows {
		for _, more := range [][]string{nil, {"-o", "json"}, {"--log-format", "json"}} {
			args := slices.Concat(r.args, more)
			if r.child && more != nil && args[0] == "lab" {
				continue
			}
			if more != nil && r.child { // what is to be handled is gone
				printed("send", "--queue", url, "--n", "1")
			}
			var s said
			if r.child {
				s = printedByChild(t, args...)
			} else {
				s = printed(args...)
			}
			what := fmt.Sprintf("%.60q %v", strings.Join(r.args, " "), more)
			visible(t, what+" on stdout", s.out)
			visible(t, what+" on stderr", s.errs)
			if more == nil && !strings.Contains(s.out+s.errs, r.shows) {
				t.Errorf("%s does not show %s:\n%s%s", what, r.shows, s.out, s.errs)
			}
			if more != nil && more[1] == "json" && more[0] == "-o" && s.out != "" && r.args[1] != "export" && !json.Valid([]byte(s.out)) {
				t.Errorf("%s is no JSON: %s", what, s.out)
			}
		}
		ran[r.args[0]] = true
		if len(r.args) > 1 {
			ran[r.args[0]+" "+r.args[1]] = true
		}
	}
	// These print nothing that comes from messages, or only what their own tests look at.
	other := strings.Fields("alerts dashboards bench console demo extension init lab.down lab.list lab.up relay serve sqs sqs.fault verify version")
	for _, name := range allCommands() {
		if !ran[name] && !slices.Contains(other, strings.ReplaceAll(name, " ", ".")) {
			t.Errorf("semel %s is not tried: add a row", name)
		}
	}
}

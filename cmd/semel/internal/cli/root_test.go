package cli

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// TestSignalsOfOneSecondAreOne: GNU timeout signals a process and then its group, which killed handlers that were to end in
// peace.
func TestSignalsOfOneSecondAreOne(t *testing.T) {
	for _, c := range []struct {
		name     string
		at       []time.Duration // of signals
		want     bool            // stopped at once, before ten seconds
		notified bool
	}{
		{"none", nil, false, false},
		{"one", []time.Duration{0}, false, true},
		{"two at once", []time.Duration{0, 0}, false, true},
		{"four within a second", []time.Duration{0, 0, time.Millisecond, 999 * time.Millisecond}, false, true},
		{"another one later", []time.Duration{0, 1001 * time.Millisecond}, true, true},
		{"two at once, another one later", []time.Duration{0, 0, 5 * time.Second}, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals, done := make(chan os.Signal, 2), make(chan struct{})
			var stopped, notified, twice bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				twice = again(signals, done, func() { stopped = true }, func() { notified = true })
			}()
			began := time.Now()
			for _, at := range c.at {
				time.Sleep(time.Until(began.Add(at)))
				signals <- syscall.SIGTERM
			}
			time.Sleep(time.Until(began.Add(10 * time.Second)))
			close(done)
			<-ended
			if twice != c.want || notified != c.notified || stopped != (len(c.at) > 0) {
				t.Errorf("%s: stopped at once %t, want %t; notified %t, stopped %t", c.name, twice, c.want, notified, stopped)
			}
		})
	}
}

// TestHelpWidth: every help page fits into helpWidth columns.
func TestHelpWidth(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		var page strings.Builder
		cmd.SetOut(&page)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(page.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%s --help: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.Name() != "completion" { // cobra wrote its pages
				walk(sub)
			}
		}
	}
	walk((&app{p: &output.Printer{}}).root())
}

func TestWrap(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"short\nlines stay", "short\nlines stay"},
		{"a paragraph with a long line\nis filled\n\nnext", "a paragraph with a\nlong line is filled\n\nnext"},
		{"  skip  what is not there is left out", "  skip  what is not\n        there is\n        left out"},
		{"    indented text without columns", "    indented text\n    without columns"},
		{"a-word-that-is-too-long-for-it", "a-word-that-is-too-long-for-it"},
	} {
		if got := wrap(c.in, 20); got != c.want {
			t.Errorf("wrap(%q):\n%s\nwant\n%s", c.in, got, c.want)
		}
	}
}

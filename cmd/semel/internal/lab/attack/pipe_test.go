package attack_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/semeltest/verify"
)

// piped is a handler that keeps running, in another language.
func piped(t *testing.T, language, habit string, args ...string) attack.Options {
	t.Helper()
	program := map[string]string{"python3": "charge.py", "node": "charge.mjs"}[language]
	if _, err := exec.LookPath(language); err != nil {
		server.LeaveOut(t, language, "it is not installed")
	}
	path, err := filepath.Abs(filepath.Join("testdata", program))
	if err != nil {
		t.Fatal(err)
	}
	return attack.Options{Argv: append([]string{language, path, habit}, args...), Pipe: true}
}

// TestFM3_PipeHabits attacks handlers that keep running, and pins the verdict of each mistake: SIGKILL to the handler, to the worker,
// and to both; lost responses; errors.
func TestFM3_PipeHabits(t *testing.T) {
	for _, h := range []struct {
		language, habit string
		nightly         bool
		want            map[string]verify.Verdict
		// attack and in: the reason or fix of that attack has this text.
		attack, in string
	}{
		{"python3", "good", true, map[string]verify.Verdict{"kill-middle": held, "kill-after": held, "worker-killed": held}, "", ""},
		{"python3", "bare", false, map[string]verify.Verdict{"kill-after": doubled, "worker-killed": doubled}, "kill-after",
			"send the message's effect_key as the header Idempotency-Key"},
		{"python3", "renames", true, map[string]verify.Verdict{"two-at-once": doubled}, "two-at-once", "the key is made anew"},
		{"python3", "careless", true, map[string]verify.Verdict{"error-before": lost}, "error-before", "the outcome is later when nothing was applied"},
		{"python3", "marks", false, map[string]verify.Verdict{"error-before": lost}, "error-before", ""},
		{"python3", "remembers", false, map[string]verify.Verdict{}, "normal", "also in a process that keeps running"},
		{"node", "good", false, map[string]verify.Verdict{"kill-middle": held, "kill-after": held}, "", ""},
		{"node", "bare", true, map[string]verify.Verdict{"kill-after": doubled, "worker-killed": doubled}, "worker-killed", "effect_key"},
		{"node", "forgets", false, map[string]verify.Verdict{"error-before": lost}, "error-before", "wait for the response"},
		{"node", "remembers", true, map[string]verify.Verdict{}, "normal", "effect_key is another one for each message"},
		{"node", "prints", false, map[string]verify.Verdict{}, "normal", "it wrote a line that is no result"},
	} {
		t.Run(h.language+"/"+h.habit, func(t *testing.T) {
			t.Parallel()
			if h.nightly && !semeltest.Nightly() {
				t.Skip("in nightly runs")
			}
			o := piped(t, h.language, h.habit)
			o.Timeout = time.Minute // until an interpreter has started on a slow machine
			for name := range h.want {
				o.Only = append(o.Only, name)
			}
			rep, got := run(t, o)
			broken := len(h.want) == 0
			for name, v := range h.want {
				broken = broken || v != held
				if got[name] != v {
					t.Errorf("%s: %s, want %s", name, got[name], v)
				}
			}
			if text := says(rep, h.attack); !strings.Contains(text, h.in) || rep.OK() == broken {
				t.Errorf("verdict %s, and of %s: %s", rep.Verdict, h.attack, text)
			}
			if t.Failed() {
				show(t, rep)
			}
		})
	}
}

// TestFM3_PipeGood: no attack breaks a handler that passes the effect key on.
func TestFM3_PipeGood(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("in nightly runs")
	}
	for _, language := range []string{"python3", "node"} {
		t.Run(language, func(t *testing.T) {
			rep, got := run(t, piped(t, language, "good"))
			if !rep.OK() || rep.Count(held) != len(got) || len(got) != len(attack.List()) {
				show(t, rep)
				t.Errorf("%d of %d attacks held", rep.Count(held), len(got))
			}
		})
	}
}

// TestFM3_PipeJournal: what a handler writes itself is counted, and it is killed between its effect and its result.
func TestFM3_PipeJournal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "effects.jsonl")
	o := piped(t, "python3", "journal", file)
	o.Journal, o.Only = attack.Journal{Place: file}, []string{"kill-after"}
	rep, got := run(t, o)
	want := map[string]verify.Verdict{"normal": held, "kill-after": doubled}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s, want %s", name, got[name], v)
		}
	}
	if t.Failed() {
		show(t, rep)
	}
}

//go:build unix

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// run consumes messages with a handler until n of them were settled for good, and returns the summary. It goes through
// the real engine, because the meaning of an error is the engine's.
func run(t *testing.T, h semel.Handler, change func(*semel.Config), msgs ...semel.Message) (semel.Summary, *memory.DB) {
	t.Helper()
	db := memory.Open()
	return runOn(t, db.Queue("q"), db.Store(), h, change, msgs...), db
}

// inspected is a queue that counts its messages.
type inspected interface {
	semel.Queue
	driver.Sender
	driver.QueueInspector
}

// runOn is run on a queue and a store.
func runOn(t *testing.T, q inspected, store semel.Store, h semel.Handler, change func(*semel.Config), msgs ...semel.Message) semel.Summary {
	t.Helper()
	for i := range msgs {
		if msgs[i].ID == "" {
			msgs[i].ID = fmt.Sprintf("m%d", i)
		}
	}
	if err := q.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	cfg := semel.Config{Queue: q, Store: store, Handler: h, MaxAttempts: 2, Backoff: semel.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}}
	if change != nil {
		change(&cfg)
	}
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		st, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.Empty() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not done: %+v %+v", st, c.Summary())
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return c.Summary()
}

func program(script string) *Exec {
	return &Exec{Argv: Shell(script), Queue: "q", Keep: 1 << 10, KillGrace: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
}

func TestExecExitCodes(t *testing.T) {
	for _, c := range []struct {
		script string
		want   semel.Summary
		reason string
	}{
		{"exit 0", semel.Summary{Executed: 1, Effects: 1}, ""},
		{"exit 64", semel.Summary{Executed: 1, Dead: 1}, "handler exited 64"},
		{"echo why >&2; exit 65", semel.Summary{Executed: 1, Dead: 1}, "handler exited 65: why"},
		{"exit 75", semel.Summary{Executed: 2, Retried: 1, Dead: 1}, "handler exited 75"},
		{"exit 1", semel.Summary{Executed: 2, Retried: 1, Dead: 1}, "handler exited 1"},
		{"kill -9 $$", semel.Summary{Executed: 2, Retried: 1, Dead: 1}, "signal: killed"},
		{"exit 99", semel.Summary{Executed: 1, Dropped: 1}, ""},
		{"cat >/dev/null; exit 0", semel.Summary{Executed: 1, Effects: 1}, ""},
	} {
		t.Run(c.script, func(t *testing.T) {
			got, db := run(t, Plain(program(c.script), slog.New(slog.DiscardHandler)), nil, semel.Message{Body: []byte("body")})
			got.Received, got.ElapsedMS, got.Returned = 0, 0, 0
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			ls, err := db.Queue("q").DeadLetters(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.reason == "" && len(ls) > 0:
				t.Errorf("dead letter %+v", ls[0])
			case c.reason != "" && (len(ls) != 1 || !strings.Contains(ls[0].Reason, c.reason)):
				t.Errorf("dead letters %+v, want reason %q", ls, c.reason)
			}
		})
	}
}

// A handler that exits 75 has applied nothing: under the policy Once it is retried. Any other failure is parked.
func TestExecNotApplied(t *testing.T) {
	once := func(c *semel.Config) { c.Takeover = semel.Once }
	got, _ := run(t, Plain(program("test $SEMEL_ATTEMPT = 2 || exit 75"), nil), once, semel.Message{})
	if got.Effects != 1 || got.Retried != 1 || got.Uncertain != 0 {
		t.Errorf("exit 75: %+v", got)
	}
	got, _ = run(t, Plain(program("exit 1"), nil), once, semel.Message{})
	if got.Uncertain != 1 || got.Retried != 0 {
		t.Errorf("exit 1: %+v", got)
	}
}

// A program that cannot be started spends no attempt, and ends the worker after three in a row.
func TestExecBroken(t *testing.T) {
	var broken error
	ctx, stop := context.WithCancelCause(t.Context())
	e := &Exec{Argv: []string{filepath.Join(t.TempDir(), "nothing")}, Log: slog.New(slog.DiscardHandler), Broken: func(err error) { broken = err; stop(err) }}
	for i := range 3 {
		if broken != nil {
			t.Fatalf("broken after %d", i)
		}
		if _, _, err := e.Run(ctx, &semel.Attempt{}); err == nil {
			t.Fatal("no error")
		}
	}
	if !errors.Is(broken, ErrHandlerBroken) {
		t.Errorf("got %v", broken)
	}
}

// One good run between two bad ones begins the count anew.
func TestExecBrokenInARow(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	e := program(fmt.Sprintf(`test -e %s/ok || exit 127`, dir))
	e.Broken = func(error) { broken.Store(true) }
	for i := range 9 {
		if i%3 == 2 {
			if err := os.WriteFile(filepath.Join(dir, "ok"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			_ = os.Remove(filepath.Join(dir, "ok"))
		}
		_, _, _ = e.Run(t.Context(), &semel.Attempt{})
	}
	if broken.Load() {
		t.Error("broken without three in a row")
	}
}

// A cancelled run gets SIGTERM, as its whole group does, and SIGKILL after the grace.
func TestExecCancel(t *testing.T) {
	for name, script := range map[string]string{
		"polite":    `trap 'echo term > %[1]s/term; exit 1' TERM; echo > %[1]s/up; while :; do sleep 0.02; done`,
		"stubborn":  `trap '' TERM; echo > %[1]s/up; while :; do sleep 0.02; done`,
		"offspring": `(trap '' TERM; sleep 120; echo late > %[1]s/late) & echo > %[1]s/up; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := program(fmt.Sprintf(script, dir))
			if name == "polite" {
				e.KillGrace = time.Minute // it needs none, but a shell on a busy machine may need a while
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				for {
					if _, err := os.Stat(filepath.Join(dir, "up")); err == nil {
						cancel(semel.ErrFenced)
						return
					}
					time.Sleep(time.Millisecond) // the pause between two looks
				}
			}()
			began := time.Now()
			_, _, err := e.Run(ctx, &semel.Attempt{})
			if !errors.Is(err, semel.ErrFenced) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("took %s", took)
			}
			if _, err := os.Stat(filepath.Join(dir, "term")); (err == nil) != (name == "polite") {
				t.Errorf("SIGTERM was seen: %v", err == nil)
			}
		})
	}
}

// What a handler leaves running does not hold its run up, even when it has inherited stdout.
func TestExecLeavesBackground(t *testing.T) {
	began := time.Now()
	out, cut, err := program("sleep 120 & echo done").Run(t.Context(), &semel.Attempt{})
	if err != nil || cut || string(out) != "done\n" {
		t.Errorf("got %q %v %v", out, cut, err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

func TestExecResultIsCut(t *testing.T) {
	out, cut, err := program("head -c 100000 /dev/zero").Run(t.Context(), &semel.Attempt{})
	if err != nil || !cut || len(out) != 1<<10 {
		t.Errorf("got %d bytes, cut %v, %v", len(out), cut, err)
	}
}

// Exit 69 opens the engine's breaker: the others wait without a run, one tries, and when the downstream is back all are
// done. However long it takes no attempt is spent.
func TestExecUnavailable(t *testing.T) {
	dir := t.TempDir()
	e := program(fmt.Sprintf(`echo x >> %[1]s/runs; test $(wc -l < %[1]s/runs) -gt 5 || exit 69`, dir))
	var open, shut atomic.Int32
	got, _ := run(t, Plain(e, quiet()), func(cfg *semel.Config) {
		cfg.Concurrency, cfg.MaxAttempts = 1, 1
		cfg.Breaker = semel.Breaker{Failures: 1, Open: semel.Backoff{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}}
		cfg.Events.Health = func(ev semel.Event) {
			switch ev.Kind {
			case semel.EventPaused:
				open.Add(1)
			case semel.EventResumed:
				shut.Add(1)
			}
		}
	}, semel.Message{}, semel.Message{}, semel.Message{})
	if got.Effects != 3 || got.Dead != 0 || got.Executed != 8 || got.Retried != 5 {
		t.Errorf("got %+v", got)
	}
	if open.Load() != 5 || shut.Load() != 1 {
		t.Errorf("paused %d times, resumed %d times", open.Load(), shut.Load())
	}
}

// A message id with NUL cannot be in an environment; it is replaced, and the handler runs.
func TestExecNUL(t *testing.T) {
	out, _, err := program(`printf %s "$SEMEL_MESSAGE_ID"`).Run(t.Context(), &semel.Attempt{Message: semel.Message{ID: "a\x00b"}})
	if err != nil || string(out) != "a\uFFFDb" {
		t.Errorf("got %q %v", out, err)
	}
}

func TestLineLog(t *testing.T) {
	var got []string
	l := &lineLog{emit: func(s string) { got = append(got, s) }}
	for _, s := range []string{"a", "b\nc\r\n\n", " \n", "\xff", strings.Repeat("x", longLine), "end"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if last := l.flush(); last != "end" {
		t.Errorf("last %q", last)
	}
	want := []string{"ab", "c", "\uFFFD" + strings.Repeat("x", longLine), "end"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.100q", got)
	}
}

// The lines of docs/worker.md make the key that a.EffectKey("mails") is in Go.
func TestExecKeyOfANamedEffect(t *testing.T) {
	for name, script := range map[string]string{
		"sha256sum": `printf %s "$SEMEL_EFFECT_KEY/mails" | sha256sum | cut -c1-64`,
		"shasum":    `printf %s "$SEMEL_EFFECT_KEY/mails" | shasum -a 256 | cut -c1-64`,
		"python3": `python3 -c 'import hashlib, os
print(hashlib.sha256((os.environ["SEMEL_EFFECT_KEY"] + "/mails").encode()).hexdigest())'`,
		"node": `node -e 'console.log(require("crypto").createHash("sha256").update(process.env.SEMEL_EFFECT_KEY + "/mails").digest("hex"))'`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err)
			}
			var want, got string
			inner := program(script)
			h := semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
				want = a.EffectKey("mails")
				out, _, err := inner.Run(ctx, a)
				got = strings.TrimSpace(string(out))
				return err
			})
			if sum, _ := run(t, h, nil, semel.Message{Body: []byte("{}")}); sum.Effects != 1 || got != want || len(got) != 64 {
				t.Errorf("%s, Go has %s: %+v", got, want, sum)
			}
		})
	}
}

//go:build unix

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// pipe starts handler processes for a test: one, with one message at a time, unless change says otherwise.
func pipe(t *testing.T, change func(*Pipe), args ...string) *Pipe {
	t.Helper()
	p := &Pipe{
		Argv: append([]string{os.Args[0], "pipe"}, args...), Queue: "q", Processes: 1, InFlight: 1, Keep: 1 << 10,
		KillGrace: 200 * time.Millisecond, Look: 10 * time.Millisecond, Log: quiet(),
	}
	if change != nil {
		change(p)
	}
	p.Start()
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// says is a message that tells the process what to do.
func says(s script) semel.Message {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return semel.Message{Body: b}
}

func reasons(t *testing.T, db *memory.DB) string {
	t.Helper()
	ls, err := db.Queue("q").DeadLetters(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range ls {
		all = append(all, string(l.Kind)+": "+l.Reason)
	}
	return strings.Join(all, "\n")
}

// counts leaves the counts that do not depend on time.
func counts(s semel.Summary) semel.Summary {
	s.Received, s.ElapsedMS, s.Returned = 0, 0, 0
	return s
}

func TestPipeOutcomes(t *testing.T) {
	for _, c := range []struct {
		line   string
		want   semel.Summary
		reason string
	}{
		{`{"id":$ID,"outcome":"done","result":{"charged":4200}}`, semel.Summary{Executed: 1, Effects: 1}, ""},
		{`[{"id":$ID,"outcome":"done"}]`, semel.Summary{Executed: 1, Effects: 1}, ""},
		{`{"id":$ID,"outcome":"dead","reason":"no order"}`, semel.Summary{Executed: 1, Dead: 1}, "failed: handler said dead: no order"},
		{`{"id":$ID,"outcome":"drop","reason":"test"}`, semel.Summary{Executed: 1, Dropped: 1}, ""},
		{`{"id":$ID,"outcome":"retry","reason":"why"}`, semel.Summary{Executed: 2, Retried: 1, Dead: 1}, "handler said retry: why"},
		{`{"id":$ID,"outcome":"later","delay_ms":1}`, semel.Summary{Executed: 2, Retried: 1, Dead: 1}, "handler said later"},
		{`{"id":$ID,"outcome":"done","effects":[{"sql":"x"}]}`, semel.Summary{Executed: 1, Dead: 1}, "--effects sql"},
		{`{"id":$ID,"outcome":"done","emit":[{"body":"b"}]}`, semel.Summary{Executed: 1, Dead: 1}, "names no queue"},
		{`{"id":$ID,"outcome":"done","emit":[{"queue":"next","body":{"n":1}}]}`, semel.Summary{Executed: 1, Effects: 1}, ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			got, db := run(t, pipe(t, nil).Handler(), nil, says(script{Write: c.line}))
			if counts(got) != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if found := reasons(t, db); !strings.Contains(found, c.reason) || c.reason == "" && found != "" {
				t.Errorf("dead letters %q, want %q", found, c.reason)
			}
		})
	}
}

// Outcomes without an attempt: busy is redelivered, unavailable opens the breaker.
func TestPipeSpendsNoAttempt(t *testing.T) {
	for outcome, pauses := range map[string]int32{"busy": 0, "unavailable": 1} {
		t.Run(outcome, func(t *testing.T) {
			var paused atomic.Int32
			got, db := run(t, pipe(t, nil).Handler(), func(c *semel.Config) {
				c.MaxAttempts = 1
				c.Breaker = semel.Breaker{Failures: 1, Open: semel.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}}
				c.Events.Health = func(ev semel.Event) {
					if ev.Kind == semel.EventPaused {
						paused.Add(1)
					}
				}
			}, says(script{Write: `{"id":$ID,"outcome":"` + outcome + `","delay_ms":1}`, Once: true}))
			if got.Dead != 0 || paused.Load() < pauses {
				t.Errorf("%+v, paused %d times: %s", got, paused.Load(), reasons(t, db))
			}
		})
	}
}

// A process that dies, writes rubbish, uses a wrong id or writes a result twice loses the messages that it has, with the outcome
// unknown, and no others. Another process takes its place.
func TestFM83_PipeFaultCostsItsOwnMessages(t *testing.T) {
	for name, c := range map[string]struct {
		fault  script
		reason string
	}{
		"dies":    {script{Exit: 7, Write: "\n"}, "ended (exit status 7): out of memory"},
		"rubbish": {script{Write: "charging order 7"}, "a line that is no result"},
		"unknown": {script{Write: `{"id":$ID,"outcome":"maybe"}`}, `"outcome" "maybe" is unknown`},
		"member":  {script{Write: `{"id":$ID,"outcome":"done","rezult":1}`}, `unknown field "rezult"`},
		"wrong":   {script{Write: `{"id":1$ID,"outcome":"done"}`}, "which it does not have"},
		"long":    {script{Write: strings.Repeat("x", 100)}, "a line that is no result"},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault.Once = true
			for _, policy := range []semel.Takeover{semel.Resume, semel.Once} {
				got, db := run(t, pipe(t, func(p *Pipe) { p.Processes = 2 }).Handler(), func(cfg *semel.Config) { cfg.Takeover = policy },
					says(c.fault), semel.Message{}, semel.Message{}, semel.Message{})
				want := semel.Summary{Executed: 5, Effects: 4, Retried: 1}
				if policy == semel.Once {
					want = semel.Summary{Executed: 4, Effects: 3, Uncertain: 1}
				}
				if counts(got) != want {
					t.Errorf("%v: got %+v, want %+v", policy, got, want)
				}
				if found := reasons(t, db); policy == semel.Once && !strings.Contains(found, c.reason) {
					t.Errorf("dead letter %q, want %q", found, c.reason)
				}
			}
		})
	}
}

// The first of two results counts. The process that wrote the second is not trusted with another message.
func TestPipeResultTwice(t *testing.T) {
	p := pipe(t, func(p *Pipe) { p.InFlight = 2 })
	twice := says(script{Write: "{\"id\":$ID,\"outcome\":\"done\"}\n{\"id\":$ID,\"outcome\":\"dead\"}"})
	got, _ := run(t, p.Handler(), func(c *semel.Config) { c.Takeover = semel.Once }, twice)
	if got.Effects != 1 || got.Dead != 0 {
		t.Errorf("got %+v", got)
	}
	got, db := run(t, p.Handler(), func(c *semel.Config) { c.Takeover = semel.Once }, says(script{Hang: true}), twice)
	if got.Effects != 1 || got.Uncertain != 1 || !strings.Contains(reasons(t, db), "a second result") {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// A message that always kills its process ends as a dead letter, and takes nobody with it: after a run of unknown outcome a
// message has a process of its own.
func TestFM83_PipePoisonRunsAlone(t *testing.T) {
	p := pipe(t, func(p *Pipe) { p.InFlight = 4 })
	msgs := []semel.Message{says(script{Exit: 7, Write: "\n"})}
	for range 12 {
		msgs = append(msgs, semel.Message{})
	}
	got, db := run(t, p.Handler(), func(c *semel.Config) { c.MaxAttempts = 2 }, msgs...)
	if got.Effects != 12 || got.Dead != 1 {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// A hanging handler gets a cancel line. One that obeys costs nothing; one that does not is killed, and the outcome is unknown.
func TestFM08_PipeHangs(t *testing.T) {
	short := func(c *semel.Config) { c.Timeout, c.Takeover = 50*time.Millisecond, semel.Once }
	got, db := run(t, pipe(t, nil).Handler(), short, says(script{Hang: true}), semel.Message{})
	if got.Uncertain != 1 || got.Effects != 1 || !strings.Contains(reasons(t, db), "handler stopped: semel: handler timed out") {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
	p := pipe(t, func(p *Pipe) { p.KillGrace = time.Minute })
	got, db = run(t, p.Handler(), short, says(script{Wait: "cancel", Write: `{"id":$ID,"outcome":"dead","reason":"stopped on request"}`}))
	if got.Dead != 1 || !strings.Contains(reasons(t, db), "stopped on request") {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// The process learns that its lease is longer now.
func TestFM07_PipeLeaseIsExtended(t *testing.T) {
	got, _ := run(t, pipe(t, nil).Handler(), func(c *semel.Config) { c.Visibility = 300 * time.Millisecond },
		says(script{Wait: "extend"}))
	if got.Effects != 1 || got.Executed != 1 {
		t.Errorf("got %+v", got)
	}
}

// A process gets as many messages as --in-flight says.
func TestPipeBackpressure(t *testing.T) {
	msgs := make([]semel.Message, 12)
	for i := range msgs {
		msgs[i] = says(script{Together: 3})
	}
	got, db := run(t, pipe(t, func(p *Pipe) { p.InFlight = 3 }).Handler(), nil, msgs...)
	if got.Effects != 12 || got.Executed != 12 {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// What a process has no room for waits in the worker.
func TestPipeWaitsForRoom(t *testing.T) {
	p := pipe(t, func(p *Pipe) { p.InFlight = 3 })
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() { p.call(ctx, []*semel.Attempt{{Message: says(script{Wait: "cancel"})}}, false) })
	}
	for given, waiting := 0, 0; given == 0 || given+waiting < 5; runtime.Gosched() {
		p.mu.Lock()
		if waiting = len(p.waiters); len(p.children) > 0 {
			given = p.children[0].load
		}
		if p.mu.Unlock(); given > 3 {
			t.Fatalf("%d messages in a process", given)
		}
	}
	stop()
	calls.Wait()
}

// A process that ends before it is ready costs no message an attempt: the breaker opens until it starts.
func TestPipeDiesAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "starts")
	var paused atomic.Int32
	got, db := run(t, pipe(t, nil, "fails="+file).Handler(), func(c *semel.Config) {
		c.MaxAttempts = 1
		c.Breaker = semel.Breaker{Failures: 1, Open: semel.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}}
		c.Events.Health = func(ev semel.Event) {
			if ev.Kind == semel.EventPaused {
				paused.Add(1)
			}
		}
	}, semel.Message{}, semel.Message{})
	if got.Effects != 2 || got.Dead != 0 || paused.Load() == 0 {
		t.Errorf("got %+v, paused %d times: %s", got, paused.Load(), reasons(t, db))
	}
}

// What cannot be run at all ends the worker.
func TestPipeBroken(t *testing.T) {
	for _, argv := range [][]string{{filepath.Join(t.TempDir(), "nothing")}, {"/bin/sh", "-c", "exit 127"}} {
		broken := make(chan error, 1)
		pipe(t, func(p *Pipe) { p.Argv, p.Broken = argv, func(err error) { broken <- err } })
		if err := <-broken; !errors.Is(err, ErrHandlerBroken) {
			t.Errorf("%q: %v", argv, err)
		}
	}
}

// The first line must say that the process is ready. No message was given to it by then.
func TestPipeFirstLine(t *testing.T) {
	p := pipe(t, nil, "rubbish")
	r := p.call(t.Context(), []*semel.Attempt{{}}, false)[0]
	if d := semel.DispositionOf(r.err); !d.Unavailable || !d.NotApplied || !strings.Contains(r.err.Error(), "Hello, I am") {
		t.Errorf("got %v", r.err)
	}
}

// Close lets processes end by themselves, and ends those that do not.
func TestFM67_PipeClose(t *testing.T) {
	log := &logged{}
	p := pipe(t, func(p *Pipe) {
		p.Processes, p.KillGrace, p.Log = 2, time.Minute, slog.New(slog.NewTextHandler(log, nil))
	})
	if got, _ := run(t, p.Handler(), nil, semel.Message{}); got.Effects != 1 {
		t.Fatal(got)
	}
	_ = p.Close()
	for n := 1; n <= 2; n++ {
		if want := fmt.Sprintf(`msg="end of input" source=handler process=%d`, n); !strings.Contains(log.String(), want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	stubborn := pipe(t, func(p *Pipe) { p.Argv = Shell(`trap '' TERM; echo '{"ready":1}'; while :; do sleep 0.02; done`) })
	if err := stubborn.Close(); err != nil { // returns
		t.Error(err)
	}
}

// logged is a log that may be written to concurrently.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A handler that ends at every start, as one with a wrong import does, ends the worker after a number of starts. Its message spends
// no attempt, and stays in the queue.
func TestFM83_PipeThatIsNeverReadyEndsTheWorker(t *testing.T) {
	db := memory.Open()
	q := db.Queue("q")
	if err := q.Send(t.Context(), semel.Message{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	p := pipe(t, func(p *Pipe) { p.Processes, p.pause, p.Broken = 2, time.Millisecond, stop }, "exit=1")
	c, err := semel.New(semel.Config{Queue: q, Store: db.Store(), Handler: p.Handler(), MaxAttempts: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := context.Cause(ctx); !errors.Is(err, ErrNeverReady) || !strings.Contains(err.Error(), "14 were started") {
		t.Errorf("the worker ended by %v", err)
	}
	st, err := q.Stats(t.Context())
	if err != nil || st.Visible+st.Delayed != 1 || st.DeadLetters != 0 {
		t.Errorf("the queue: %+v, %v", st, err)
	}
	if r, ok, err := db.Store().Record(t.Context(), semel.Key{Consumer: "q", Raw: "m"}); err != nil || ok && (r.Failures != 0 || r.Unknown) {
		t.Errorf("the record: %+v, %v", r, err)
	}
}

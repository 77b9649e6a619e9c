package semellambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	semellambda "github.com/semel-dev/semel/adapters/aws/lambda"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

var errBoom = errors.New("boom")

const standard, fifo = "arn:aws:sqs:us-east-1:1:orders", "arn:aws:sqs:us-east-1:1:orders.fifo"

// rec is a record; with a group it is one of a FIFO queue.
func rec(id, body, group string) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: id, Body: body, EventSourceARN: standard, EventSource: "aws:sqs",
		Attributes: map[string]string{"ApproximateReceiveCount": "1", "SentTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10)},
	}
	if group != "" {
		r.EventSourceARN, r.Attributes["MessageGroupId"] = fifo, group
	}
	return r
}

// fixture is what the invocations of one environment share.
type fixture struct {
	t           *testing.T
	store       *memory.Store
	deadLetters *memory.Queue
	h           *semellambda.SQS
	mu          sync.Mutex
	ran         []string // bodies, in the order in which runs began
	exits       int
}

// newFixture makes a handler that does what the body says: ok, fail, dead, park, drop, slow (2 s), stuck (60 s, ignores its
// cancellation), long (until it is cancelled).
func newFixture(t *testing.T, tweak func(*semel.Config, *semellambda.Options)) *fixture {
	t.Helper()
	db := memory.Open()
	w := &fixture{t: t, store: db.Store(), deadLetters: memory.NewQueue("dead-letters")}
	cfg := semel.Config{Store: w.store, Handler: semel.HandlerFunc(w.run), MaxAttempts: 2, Logger: slog.New(slog.DiscardHandler)}
	o := semellambda.Options{DeadLetters: w.deadLetters, Exit: func(int) { w.exits++ }}
	if tweak != nil {
		tweak(&cfg, &o)
	}
	h, err := semellambda.NewSQS(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	w.h = h
	return w
}

func (w *fixture) run(ctx context.Context, a *semel.Attempt) error {
	what, _, _ := strings.Cut(string(a.Body), " ")
	w.mu.Lock()
	w.ran = append(w.ran, string(a.Body))
	w.mu.Unlock()
	switch what {
	case "fail":
		return semel.NotApplied(errBoom)
	case "dead":
		return semel.NotApplied(semel.Permanent(errBoom))
	case "park":
		return semel.Park(errBoom)
	case "drop":
		return semel.Drop("not ours")
	case "slow":
		time.Sleep(2 * time.Second)
	case "stuck":
		time.Sleep(time.Minute)
	case "long":
		<-ctx.Done()
		return context.Cause(ctx)
	case "panic":
		panic("boom")
	}
	return nil
}

// invoke is one invocation with a timeout; failed are the reported messages, as Lambda would read them.
func (w *fixture) invoke(timeout time.Duration, rs ...events.SQSMessage) (failed []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	end := time.Now().Add(timeout)
	got, err := w.h.Handle(ctx, events.SQSEvent{Records: rs})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.exits == 0 && time.Now().After(end) {
		w.t.Fatalf("got %v after the deadline", time.Since(end))
	}
	raw, err := json.Marshal(got)
	if err != nil || !strings.HasPrefix(string(raw), `{"batchItemFailures":[`) {
		w.t.Fatalf("response %s, %v", raw, err)
	}
	for _, f := range got.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	return failed
}

func (w *fixture) record(key string) driver.Record {
	w.t.Helper()
	for _, consumer := range []string{"orders", "orders.fifo"} {
		if r, ok, _ := w.store.Record(context.Background(), semel.Key{Consumer: consumer, Raw: key}); ok {
			return r
		}
	}
	return driver.Record{}
}

func (w *fixture) deadLettersNow() []driver.DeadLetter {
	w.t.Helper()
	ls, err := w.deadLetters.DeadLetters(context.Background(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return ls
}

// TestPartialResponses is the table of the responses to batches.
func TestPartialResponses(t *testing.T) {
	for _, c := range []struct {
		name        string
		rs          []string // id, body and group, cut at /
		failed      string
		ran         int
		deadLetters int
	}{
		{"all done", []string{"1/ok", "2/ok 2", "3/ok 3"}, "", 3, 0},
		{"one fails", []string{"1/ok", "2/fail", "3/ok 3"}, "2", 3, 0},
		{"the first fails", []string{"1/fail", "2/ok"}, "1", 2, 0},
		{"all fail", []string{"1/fail", "2/fail 2"}, "1 2", 2, 0},
		{"a panic fails one", []string{"1/panic", "2/ok"}, "1", 2, 0},
		{"dead is kept as a dead letter", []string{"1/dead", "2/ok"}, "", 2, 1},
		{"parked is kept as a dead letter", []string{"1/park", "2/ok"}, "", 2, 1},
		{"dropped is done", []string{"1/drop"}, "", 1, 0},
		{"no key", []string{"1/ok/-/nokey", "2/ok 2"}, "", 1, 1},
		{"one message twice", []string{"1/ok", "1/ok"}, "", 1, 0},
		{"one message twice, failing", []string{"1/fail", "1/fail"}, "1", 1, 0},
		{"FIFO, all done", []string{"1/ok/a", "2/ok 2/a", "3/ok 3/a"}, "", 3, 0},
		{"FIFO, stops at the first failure", []string{"1/ok/a", "2/fail/a", "3/ok 3/a", "4/ok 4/a"}, "2 3 4", 2, 0},
		{"FIFO, other groups go on", []string{"1/fail/a", "2/ok/b", "3/ok 3/a", "4/ok 4/b"}, "1 3", 3, 0},
		{"FIFO, every group has its own end", []string{"1/fail/a", "2/fail 2/b", "3/ok/a", "4/ok/b", "5/ok/c"}, "1 2 3 4", 3, 0},
		{"FIFO, a dead letter is an end", []string{"1/dead/a", "2/ok/a"}, "", 2, 1},
		{"nothing", nil, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
					cfg.Key = func(m *semel.Message) (string, error) {
						if m.Header("nokey") != "" {
							return "", key.ErrMissing
						}
						return m.ID, nil
					}
				})
				rs := make([]events.SQSMessage, len(c.rs))
				for i, s := range c.rs {
					p := append(strings.Split(s, "/"), "", "")
					rs[i] = rec(p[0], p[1], strings.Trim(p[2], "-"))
					if p[3] != "" {
						rs[i].MessageAttributes = map[string]events.SQSMessageAttribute{p[3]: {DataType: "String", StringValue: &p[3]}}
					}
				}
				began := time.Now()
				if got := strings.Join(w.invoke(30*time.Second, rs...), " "); got != c.failed || len(w.ran) != c.ran {
					t.Errorf("failed %q after the runs %q", got, w.ran)
				}
				if n := len(w.deadLettersNow()); n != c.deadLetters {
					t.Errorf("%d dead letters", n)
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("returned after %v with nothing to wait for", d)
				}
			})
		})
	}
}

// TestDuplicatesAndRetries: over several invocations every key is run until it succeeds, and then never again.
func TestDuplicatesAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil)
		if got := w.invoke(30*time.Second, rec("1", "ok", ""), rec("2", "fail", "")); !slices.Equal(got, []string{"2"}) {
			t.Fatalf("failed %q", got)
		}
		time.Sleep(3 * time.Minute) // the visibility
		if got := w.invoke(30*time.Second, rec("1", "ok", ""), rec("2", "fail", "")); len(got) != 0 {
			t.Fatalf("failed %q: 1 is a duplicate, 2 has used its attempts up and is a dead letter", got)
		}
		if got := w.invoke(30*time.Second, rec("2", "fail", ""), rec("1", "ok", "")); len(got) != 0 {
			t.Fatalf("failed %q", got)
		}
		if fmt.Sprint(w.ran) != "[ok fail fail]" || len(w.deadLettersNow()) != 1 {
			t.Errorf("runs %q, %d dead letters", w.ran, len(w.deadLettersNow()))
		}
	})
}

// TestBusyIsReported: a duplicate of a key that is in progress elsewhere is no success, and no attempt.
func TestBusyIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil)
		k := semel.Key{Consumer: "orders", Raw: "1"}
		if _, err := w.store.Claim(t.Context(), driver.Claim{Key: k, Nonce: driver.Nonce{1}, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if got := w.invoke(30*time.Second, rec("1", "ok", ""), rec("2", "ok 2", "")); !slices.Equal(got, []string{"1"}) {
			t.Fatalf("failed %q", got)
		}
		if w.record("1").Attempt != 1 || w.record("1").State != driver.InProgress {
			t.Errorf("record %+v", w.record("1"))
		}
	})
}

// TestWithoutDeadLettersTheQueueKeepsThem: a message that failed for good is no success, and is not run again.
func TestWithoutDeadLettersTheQueueKeepsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, func(_ *semel.Config, o *semellambda.Options) { o.DeadLetters, o.RedrivePolicy = nil, true })
		for range 3 {
			if got := w.invoke(30*time.Second, rec("1", "dead", "")); !slices.Equal(got, []string{"1"}) {
				t.Fatalf("failed %q", got)
			}
		}
		if len(w.ran) != 1 || w.record("1").State != driver.FailedState {
			t.Errorf("runs %q, record %+v", w.ran, w.record("1"))
		}
	})
}

// broken keeps no dead letters.
type broken struct{ *memory.Queue }

func (broken) PutDeadLetter(context.Context, driver.DeadLetter) error { return errBoom }

// TestDeadLettersThatCannotBeWritten: if its dead letter cannot be written, a message stays in the queue.
func TestDeadLettersThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, func(_ *semel.Config, o *semellambda.Options) { o.DeadLetters = broken{memory.NewQueue("l")} })
		if got := w.invoke(30*time.Second, rec("1", "dead", ""), rec("2", "ok", "")); !slices.Equal(got, []string{"1"}) {
			t.Fatalf("failed %q", got)
		}
	})
}

// TestWhatIsNotBegun: messages that are not due, pieces of dead letters, and in a FIFO queue the messages behind them are
// reported.
func TestWhatIsNotBegun(t *testing.T) {
	for name, value := range map[string]func() string{
		"semel-not-before": func() string { return strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10) },
		"semel-part":       func() string { return `{"dead_letter":"l","set":"s","number":0,"of":2}` },
	} {
		for group, want := range map[string]string{"": "[1]", "a": "[1 2]"} {
			synctest.Test(t, func(t *testing.T) {
				w, text := newFixture(t, nil), value()
				rs := []events.SQSMessage{rec("1", "ok", group), rec("2", "ok 2", group), rec("3", "ok 3", group+group)}
				rs[0].MessageAttributes = map[string]events.SQSMessageAttribute{name: {DataType: "String", StringValue: &text}}
				if got := ids(w.invoke(30*time.Second, rs...)); got != want || len(w.ran) != 4-len(strings.Fields(want))-1 {
					t.Errorf("%s in group %q: failed %s after the runs %q, want %s", name, group, got, w.ran, want)
				}
				if len(w.deadLettersNow()) != 0 {
					t.Error("it is a dead letter")
				}
			})
		}
	}
}

// TestEventsWithoutAValidResponse: an empty identifier would silently fail the whole batch, so it is an error.
func TestEventsWithoutAValidResponse(t *testing.T) {
	w := newFixture(t, nil)
	other := rec("2", "ok", "")
	other.EventSourceARN = "arn:aws:sqs:us-east-1:1:else"
	nowhere := rec("1", "ok", "")
	nowhere.EventSourceARN = ""
	for words, rs := range map[string][]events.SQSMessage{
		"record 1 has no messageId": {rec("1", "ok", ""), rec("", "ok", "")},
		"in one batch":              {rec("1", "ok", ""), other},
		"names no queue":            {nowhere},
	} {
		got, err := w.h.Handle(t.Context(), events.SQSEvent{Records: rs})
		if err == nil || !strings.Contains(err.Error(), words) || len(got.BatchItemFailures) != 0 || len(w.ran) != 0 {
			t.Errorf("%v, %v after %q", got, err, w.ran)
		}
	}
}

func TestNewSQSRefuses(t *testing.T) {
	h := semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
	store := memory.Open().Store()
	for field, c := range map[string]struct {
		cfg semel.Config
		o   semellambda.Options
	}{
		"Queue":               {semel.Config{Store: store, Handler: h, Queue: memory.NewQueue("q")}, semellambda.Options{RedrivePolicy: true}},
		"Limit":               {semel.Config{Store: store, Handler: h, Limit: 1}, semellambda.Options{RedrivePolicy: true}},
		"Options.DeadLetters": {semel.Config{Store: store, Handler: h}, semellambda.Options{}},
		"Options":             {semel.Config{Store: store, Handler: h}, semellambda.Options{RedrivePolicy: true, Floor: -1}},
		"Store":               {semel.Config{Handler: h}, semellambda.Options{RedrivePolicy: true}},
		"Retention":           {semel.Config{Store: store, Handler: h, Retention: time.Hour}, semellambda.Options{RedrivePolicy: true, Retention: 96 * time.Hour}},
	} {
		_, err := semellambda.NewSQS(c.cfg, c.o)
		if e := (*semel.ConfigError)(nil); !errors.As(err, &e) || !strings.HasPrefix(e.Field, field) || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

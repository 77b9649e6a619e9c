package simulate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

func TestTheTextFormIsReadAsItIsWritten(t *testing.T) {
	all := Knobs{
		On: true, SleepMin: time.Millisecond, SleepMax: 2 * time.Second, LongSleep: 10 * time.Second, LongEvery: 2, CrashRate: 0.25, Seed: 7,
		CrashAfterReceive: true, CrashAfterSideEffect: true, Reject: `"poison": true, 50%2C`, RetryRejected: true, Transactional: true, Ledger: "e",
	}
	for _, k := range []Knobs{{}, Default(), all} {
		var got Knobs
		err := got.Set(k.String())
		if again := got.String(); again != k.String() {
			t.Errorf("%q is written as %q", k.String(), again)
		}
		got.said = 0
		if err != nil || got != k {
			t.Errorf("%q: %+v %v, want %+v", k.String(), got, err, k)
		}
	}
	for text, want := range map[string]Knobs{
		"on":                               Default(),
		"off":                              {},
		"sleep-min=0.5, sleep-max=1m":      {On: true, SleepMin: 500 * time.Millisecond, SleepMax: time.Minute},
		"crash-after-receive,long-every=3": {On: true, SleepMin: 100 * time.Millisecond, SleepMax: time.Second, CrashAfterReceive: true, LongEvery: 3},
	} {
		var got Knobs
		err := got.Set(text)
		got.said = 0
		if err != nil || got != want {
			t.Errorf("%q: %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"sleep=1", "crash-rate=often", "sleep-min=x", "long-every=1.5", "seed=-1", "crash-after-receive=maybe"} {
		if err := (&Knobs{}).Set(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestS3_20_KnobsThatCannotBeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"sleep-min=2": "sleep-min (2s) is more than sleep-max (1s)", "crash-rate=1.1": "from 0 to 1", "crash-rate=-0.1": "from 0 to 1",
		"crash-rate=NaN": "from 0 to 1", "long-every=-1": "0 for never", "long-sleep=-1": "negative", "transactional": "needs ledger",
		"transactional,ledger=a b": "no name of a table",
	} {
		var k Knobs
		if err := k.Set(text); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if err := k.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func worker(t *testing.T, text string) *Worker {
	t.Helper()
	var k Knobs
	if err := k.Set(text); err != nil {
		t.Fatal(err)
	}
	if err := k.Check(); err != nil {
		t.Fatal(err)
	}
	w, err := New(k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func attempt(key, body string, number int) *semel.Attempt {
	return &semel.Attempt{Message: semel.Message{ID: "m-" + key, Body: []byte(body)}, Key: semel.Key{Raw: key}, Number: number}
}

func TestS3_19_TheWorkLastsAsConfigured(t *testing.T) {
	w := worker(t, "sleep-min=200ms,sleep-max=300ms,long-sleep=10,long-every=3")
	for n := 1; n <= 30; n++ {
		d := w.length(attempt("a", "x", 1))
		if n%3 == 0 { // exactly every third (S3-21, S3-22)
			if d != 10*time.Second {
				t.Errorf("run %d works %s", n, d)
			}
		} else if d < 200*time.Millisecond || d > 300*time.Millisecond {
			t.Errorf("run %d works %s", n, d)
		}
	}
	if d := w.length(attempt("a", `{"id":"msg-1","sleep":8}`, 1)); d != 8*time.Second { // S0-08
		t.Errorf("a message of 8 s works %s", d)
	}
	if d := w.length(attempt("a", `{"id":"msg-1","sleep":-8}`, 1)); d < 0 {
		t.Errorf("a message works %s", d)
	}
}

func TestS3_23_CrashesAreAShareOfTheMessagesAndFollowFromTheSeed(t *testing.T) {
	for seed := 1; seed <= 20; seed++ {
		w, again := worker(t, fmt.Sprintf("crash-rate=0.2,seed=%d", seed)), worker(t, fmt.Sprintf("crash-rate=0.2,seed=%d", seed))
		crashes := 0
		for i := range 1000 {
			key := fmt.Sprint(i)
			crash, at := w.fate(attempt(key, "", 1))
			if c, _ := again.fate(attempt(key, "", 1)); c != crash {
				t.Fatalf("seed %d: another process decides otherwise about %s", seed, key)
			}
			if c, _ := w.fate(attempt(key, "", 2)); c {
				t.Fatal("a message crashes twice: it would never be done")
			}
			if at < 0 || at >= 1 {
				t.Fatalf("dies at %v of the work", at)
			}
			if crash {
				crashes++
			}
		}
		if crashes < 150 || crashes > 250 {
			t.Errorf("seed %d: %d of 1000 crash", seed, crashes)
		}
	}
	if c, _ := worker(t, "crash-rate=1").fate(attempt("a", "", 1)); !c {
		t.Error("at rate 1 a message survives")
	}
}

// life is one process: a consumer in this one that ends its goroutines when the handler "dies".
type life struct {
	t      *testing.T
	db     *memory.DB
	deaths int
}

// live consumes until the process "dies" or nothing is left, and reports whether it died.
func (l *life) live(text string) (died bool) {
	w := worker(l.t, text)
	ctx, stop := context.WithCancel(l.t.Context())
	defer stop()
	dead := make(chan struct{})
	w.die = func() {
		select {
		case <-dead:
		default:
			close(dead)
		}
		stop()
		runtime.Goexit() // what was about to be done is not
	}
	cfg := semel.Config{Queue: deaf{l.db.Queue("q"), dead}, Store: l.db.Store(), Visibility: 2 * time.Second, Grace: 10 * time.Millisecond}
	w.Attach(&cfg, nil)
	c, err := semel.New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	for {
		select {
		case <-dead:
			<-done
			l.deaths++
			return true
		case <-time.After(5 * time.Second):
		}
		if st, err := l.db.Queue("q").Stats(ctx); err != nil || st.Empty() {
			stop()
			<-done
			return false
		}
	}
}

// deaf is a queue that hears nothing any more from a process that is dead.
type deaf struct {
	driver.Queue
	dead chan struct{}
}

func (d deaf) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	select {
	case <-d.dead:
		return make([]driver.Outcome, len(s)), io.ErrClosedPipe
	default:
		return d.Queue.Settle(ctx, s...)
	}
}

func readLedger(t *testing.T, path string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var e Effect
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.EffectKey == "" {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out[e.Key]++
	}
	return out
}

func TestS3_24_ADeathBeforeTheDeleteLeavesOneEffect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "effects.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l := &life{t: t, db: memory.Open(memory.WithVisibility(2 * time.Second))}
		for i := range 6 {
			if err := l.db.Queue("q").Send(t.Context(), driver.Message{ID: fmt.Sprint("m", i), Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		for l.live("crash-after-receive,ledger=" + path) {
			if l.deaths > 20 {
				t.Fatal("it never ends")
			}
		}
		effects := readLedger(t, path)
		if l.deaths != 6 || len(effects) != 6 {
			t.Errorf("%d deaths, effects %v", l.deaths, effects)
		}
		for key, n := range effects {
			if n != 1 {
				t.Errorf("%s took effect %d times", key, n)
			}
		}
	})
}

func TestS3_28_ARejectedPayloadIsALetterWithAReason(t *testing.T) {
	path := filepath.Join(t.TempDir(), "effects.jsonl")
	for _, how := range []string{"", ",retry-rejected"} {
		synctest.Test(t, func(t *testing.T) {
			l := &life{t: t, db: memory.Open()}
			for i, body := range []string{`{"id":1}`, `{"id":2,"poison": true}`, `{"id":3}`} {
				if err := l.db.Queue("q").Send(t.Context(), driver.Message{ID: fmt.Sprint(how, i), Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
			if l.live(`reject="poison": true,ledger=` + path + how) {
				t.Fatal("died")
			}
			deadLetters, err := l.db.Queue("q").DeadLetters(t.Context(), 0)
			if err != nil || len(deadLetters) != 1 || !strings.Contains(deadLetters[0].Reason, `the payload has "\"poison\": true"`) {
				t.Errorf("dead letters %+v %v", deadLetters, err)
			}
		})
	}
	if n := len(readLedger(t, path)); n != 4 {
		t.Errorf("%d good messages took effect, want 4", n)
	}
}

func TestOneMessageAtATimeGoesFromRunToSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns turn
		if err := turns.take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		entered := false
		go func() {
			if turns.take(t.Context(), "b") == nil {
				entered = true
			}
		}()
		synctest.Wait()
		turns.pass("c")
		synctest.Wait()
		if entered {
			t.Error("b did not wait for a")
		}
		turns.pass("a")
		synctest.Wait()
		if !entered {
			t.Error("b waits forever")
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := turns.take(ctx, "d"); err == nil {
			t.Error("a cancelled run got the turn")
		}
	})
}

// logged returns the lines that a worker logs about events, decoded from JSON.
func logged(t *testing.T, events ...semel.Event) []map[string]any {
	t.Helper()
	var log bytes.Buffer
	w := worker(t, "on")
	w.log = slog.New(slog.NewJSONHandler(&log, nil))
	for _, e := range events {
		w.observe(e)
	}
	var lines []map[string]any
	for s := bufio.NewScanner(&log); s.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		delete(line, "time")
		delete(line, "level")
		lines = append(lines, line)
	}
	return lines
}

// TestS4_16_S4_17_S4_18_TheLogOfDuplicates: the log of a run whose write was refused because another worker took over, of a
// message that another instance works on, and of one that is done.
func TestS4_16_S4_17_S4_18_TheLogOfDuplicates(t *testing.T) {
	decided := func(d semel.Decision) semel.Event {
		return semel.Event{Kind: semel.EventDecided, Decision: d, Cause: semel.Redelivery, MessageID: "m-1", Key: semel.Key{Raw: "shot-1"}}
	}
	for d, want := range map[semel.Decision]map[string]any{
		semel.BusyDeferred: {"msg": "duplicate_deferred", "id": "shot-1", "status": "processing", "reason": "already_processing", "action": "requeued"},
		semel.Replayed:     {"msg": "duplicate_skipped", "id": "shot-1", "cause": "redelivery", "status": "success", "skipped": true},
		semel.Fenced:       {"msg": "conditional_write_failed", "id": "shot-1", "reason": "race_condition_prevented"},
		semel.Executed:     {"msg": "completed", "id": "shot-1"},
	} {
		if got := logged(t, decided(d)); len(got) != 1 || !maps.Equal(got[0], want) {
			t.Errorf("%s: logged %v, want %v", d, got, want)
		}
	}
	other := decided(semel.BusyDeferred)
	other.Kind = semel.EventReceived
	if got := logged(t, other, decided(semel.Retried)); len(got) > 0 {
		t.Errorf("logged %v of what is no duplicate", got)
	}
}

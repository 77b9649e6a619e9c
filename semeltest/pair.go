package semeltest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// PairSetup is a queue and a store, as a consumer uses them.
type PairSetup struct {
	// Queue has to be a driver.Sender and a driver.QueueInspector; Extends, Delays and Counts are needed for the cases
	// that use them. Its visibility should be a second or two, because the suite waits for lost deliveries.
	Queue driver.Queue
	Store driver.Store
	// Visibility is the queue's, and Config.Visibility. Defaults to 2 s.
	Visibility time.Duration
	// Ledger counts the effects of Tx from outside. Both nil: the cases with joined effects are left out.
	Ledger *Ledger
	// Tx makes a transactional handler (semel.InTx with the store's own type) of fn: add does one effect for id.
	Tx func(fn func(ctx context.Context, add func(id string) error, a *semel.Attempt) error) semel.Handler
	// Batch makes a batch handler (semel.InTxBatch) in the same way. nil: its cases are left out.
	Batch func(fn func(ctx context.Context, add func(id string) error, batch []*semel.Attempt) error) semel.Handler

	leaks []driver.Interface // planted bugs: interfaces that the wrappers of the suite pass by mistake
}

// PairFactory opens an empty queue and an empty store.
type PairFactory func(t testing.TB) PairSetup

// RunPair tests a queue and a store together, under the real consumer: every message takes effect once, despite duplicate
// deliveries, failures, stops and lost responses.
//
// A case that fails while the machine stalls is repeated, because the failure proves nothing. With only it runs the cases
// whose name begins with one of these, for a store that takes several types of effects: [JoinedCases].
func RunPair(t *testing.T, open PairFactory, only ...string) {
	t.Helper()
	runTimed(t, chosen(t, pairCases(), only), open, func(s PairSetup) time.Duration { return standstill(s.Visibility) })
}

// CheckPair runs the same suite and returns the failures instead of failing t. See [CheckStore].
func CheckPair(t testing.TB, open PairFactory, only ...string) []string {
	t.Helper()
	return checkCases(t, pairCases(), open, only)
}

// JoinedCases are the cases of RunPair that use PairSetup.Tx or PairSetup.Batch.
func JoinedCases() []string {
	return []string{
		"joined effects", "claimed at the commit", "FM32 claimed", "FM1 claimed", "batches", "FM60 a batch", "FM83 a message", "a wrapper of",
	}
}

func pairCases() []suiteCase[PairSetup] {
	with := func(f func(p *pair)) func(testing.TB, PairSetup) {
		return func(t testing.TB, s PairSetup) { f(newPair(t, s)) }
	}
	return []suiteCase[PairSetup]{
		{"every message once, with duplicates", with(testPairDuplicates)},
		{"failing handlers", with(testPairFailing)},
		{"FM6 panics", with(testFM6Panics)},
		{"FM61 dead letters", with(testPairDead)},
		{"FM51 mismatches", with(testFM51Mismatch)},
		{"keys that are missing", with(testPairUnkeyed)},
		{"FM64 a drain returns", with(testFM64Drain)},
		{"many consumers", with(testPairMany)},
		{"joined effects", with(testPairJoined)},
		{"joined effects under faults", with(testPairJoinedFaults)},
		{"claimed at the commit", with(testPairAtCommit)},
		{"FM32 claimed at the commit under faults", with(testPairAtCommitFaults)},
		{"FM1 claimed at the commit by consumers that crash", with(testPairAtCommitCrashes)},
		{"batches", with(testPairBatch)},
		{"FM60 a batch is halved", with(testFM60Batch)},
		{"batches under faults", with(testPairBatchFaults)},
		{"FM34 outage", with(testFM34Outage)},
		{"FM83 a message that kills its process", with(testFM83Poison)},
		{"a wrapper of Claim sees every claim", with(testWrappedClaims)},
		{"a wrapper of Settle sees every ack", with(testWrappedSettles)},
	}
}

// pair runs consumers and keeps its own ledger.
type pair struct {
	PairSetup
	t   testing.TB
	dlq driver.DeadLetterQueue

	mu      sync.Mutex
	runs    map[string]int // started, by key
	effects map[string]int // returned nil, by key
}

func newPair(t testing.TB, s PairSetup) *pair {
	t.Helper()
	_, sends := driver.As[driver.Sender](s.Queue)
	_, shows := driver.As[driver.QueueInspector](s.Queue)
	if !sends || !shows {
		t.Fatal("the queue has to be a driver.Sender and a driver.QueueInspector")
	}
	if s.Visibility == 0 {
		s.Visibility = 2 * time.Second
	}
	p := &pair{PairSetup: s, t: t, runs: map[string]int{}, effects: map[string]int{}}
	var kept bool
	if p.dlq, kept = driver.DeadLettersOf(s.Queue); !kept && s.Queue.Features().DeadLetters {
		t.Fatal("the queue declares dead letters, and is neither a driver.DeadLetterQueue nor a driver.DeadLetterKeeper")
	}
	return p
}

// message is one message of a key; id differs for every copy that a producer sends.
func message(id, key, body string) driver.Message {
	return driver.Message{ID: id, Body: []byte(body), Headers: map[string]string{"key": key}}
}

func (p *pair) send(ms ...driver.Message) {
	p.t.Helper()
	if err := as[driver.Sender](p.Queue).Send(p.t.Context(), ms...); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// config is a consumer whose key is the header "key".
func (p *pair) config(h semel.Handler) semel.Config {
	return semel.Config{
		Queue: p.Queue, Store: p.Store, Handler: h, Consumer: "pair",
		Key: func(m *semel.Message) (string, error) {
			if k := m.Header("key"); k != "" {
				return k, nil
			}
			return "", key.ErrMissing
		},
		Visibility: p.Visibility, Grace: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Backoff: semel.Backoff{Min: 5 * time.Millisecond, Max: 20 * time.Millisecond},
	}
}

// count is a handler's effect on the ledger of this suite.
func (p *pair) count(in map[string]int, key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	in[key]++
	return in[key]
}

// handler counts runs and effects around f, which gets the number of the run of its key.
func (p *pair) handler(f func(ctx context.Context, a *semel.Attempt, run int) error) semel.HandlerFunc {
	return func(ctx context.Context, a *semel.Attempt) error {
		if err := f(ctx, a, p.count(p.runs, a.Key.Raw)); err != nil {
			return err
		}
		p.count(p.effects, a.Key.Raw)
		return nil
	}
}

// started is a running consumer.
type started struct {
	c    *semel.Consumer
	stop context.CancelFunc
	done chan error
}

func (p *pair) start(cfg semel.Config) *started {
	p.t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		p.t.Fatalf("new consumer: %v", err)
	}
	ctx, stop := context.WithCancel(p.t.Context())
	s := &started{c: c, stop: stop, done: make(chan error, 1)}
	go func() { s.done <- c.Run(ctx) }()
	return s
}

// halt drains consumers and waits for them.
func (p *pair) halt(ss ...*started) {
	p.t.Helper()
	for _, s := range ss {
		s.stop()
	}
	for _, s := range ss {
		select {
		case err := <-s.done:
			if err != nil {
				p.t.Errorf("run: %v", err)
			}
		case <-time.After(2 * time.Minute):
			p.t.Fatal("a consumer does not stop")
		}
	}
}

// empty waits until nothing is left to deliver. A queue whose counts are approximate has to be empty for a second: a returned
// message may be counted late.
func (p *pair) empty() {
	p.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for looks := 1; ; looks++ {
		st, err := as[driver.QueueInspector](p.Queue).Stats(p.t.Context())
		if err != nil || !st.Empty() {
			looks = 0
		} else if !st.Approximate || looks >= 100 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("after three minutes the queue still holds %+v (%v)", st, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// once wants exactly one effect of each of n keys.
func (p *pair) once(n int, from map[string]int) {
	p.t.Helper()
	p.eachOnce(n, from, 0)
}

// eachOnce wants an effect of each of n keys, and at most more beyond them.
func (p *pair) eachOnce(n int, from map[string]int, more int64) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(from) != n {
		p.t.Errorf("%d keys took effect, wanted %d", len(from), n)
	}
	for k, c := range from {
		if more -= int64(c - 1); more < 0 {
			p.t.Errorf("key %q took effect %d times, wanted once", k, c)
			more = 0
		}
	}
}

// deadLetters wants dead letters of these kinds and keys, in any order.
func (p *pair) deadLetters(want ...string) {
	p.t.Helper()
	if p.dlq == nil {
		return
	}
	ls, err := p.dlq.DeadLetters(p.t.Context(), 0)
	if err != nil {
		p.t.Fatalf("dead letters: %v", err)
	}
	got := map[string]bool{}
	for _, l := range ls {
		got[string(l.Kind)+" "+l.Key.Raw] = true
	}
	if len(ls) != len(want) {
		p.t.Errorf("there are %d dead letters (%v), wanted %v", len(ls), got, want)
	}
	for _, w := range want {
		if !got[w] {
			p.t.Errorf("there is no dead letter %q among %v", w, got)
		}
	}
}

// sendDuplicates sends n keys, a fifth of them twice or thrice, mixed.
func (p *pair) sendDuplicates(n int) int {
	p.t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var ms []driver.Message
	for i := range n {
		for c := range 1 + max(0, r.IntN(10)-7) {
			key := fmt.Sprintf("key-%d", i)
			ms = append(ms, message(fmt.Sprintf("%s-copy-%d", key, c), key, "body of "+key))
		}
	}
	r.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	p.send(ms...)
	return len(ms)
}

package semeltest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/flake"
)

// StoreSetup is a store under test.
type StoreSetup struct {
	Store driver.Store
	// Advance moves the store's clock, also back. nil: the store has its own clock; the suite waits, and leaves out the
	// cells in which a clock steps back.
	Advance func(d time.Duration)
	// Skew is how long after the end of a lease the store waits before it lets others take over. Defaults to 0.
	Skew time.Duration
	// Queue is a queue in the same database that acks and emitted messages commit to; nil when there is none. It must also
	// be a driver.Sender.
	Queue driver.Queue
	// Ledger writes and counts effects. A driver.Committer needs one, or if it writes no effects a Queue.
	Ledger *Ledger
	// Damage makes the record of a key unreadable, like a record that a newer program wrote. nil: its cases are left out.
	Damage func(t testing.TB, k driver.Key)
	// Sample compares one of every Sample cells of the decision table, for runs that have to be short. Defaults to all.
	// See [Sampled].
	Sample int
}

// Nightly reports whether tests run at full length: SEMEL_NIGHTLY is set, as by make nightly. Otherwise tests skip
// repetitions of a case on further layouts.
func Nightly() bool { return os.Getenv("SEMEL_NIGHTLY") != "" }

// Sampled is a StoreSetup.Sample for a suite that repeats another one on a different clock or layout: one of n cells, all
// of them in nightly runs, one of 4n with -short. Other tests divide their load by it.
func Sampled(n int) int {
	switch {
	case Nightly():
		return 1
	case testing.Testing() && testing.Short():
		return 4 * n
	}
	return n
}

// StoreFactory opens an empty store that shares no records with the stores of other calls, because subtests run in
// parallel and a sweep covers all records. It registers its own cleanup with t.Cleanup.
type StoreFactory func(t testing.TB) StoreSetup

// Longer returns d, and twice as much each time a case is repeated because the machine stalled. It is for the visibility
// timeouts of setups with a real clock.
func Longer(t testing.TB, d time.Duration) time.Duration { return flake.Longer(t, d) }

// QueueSetup is a queue under test.
type QueueSetup struct {
	Queue driver.Queue
	// Send puts messages into the queue. Defaults to the queue's own driver.Sender.
	Send func(ctx context.Context, m ...driver.Message) error
	// Advance moves the queue's clock, as in StoreSetup.
	Advance func(d time.Duration)
	// Visibility is how long the queue keeps a delivery from others. With a real clock choose about a second, by [Longer]:
	// the suite waits for it several times. Defaults to the Visible of the first delivery.
	Visibility time.Duration
	// MaxBody is the largest body in bytes that the queue takes; the suite sends one (30 MiB at most). Defaults to
	// 256 KiB.
	MaxBody int
	// Restart lets the process that holds Queue die, and returns the queue of another process on the same messages. nil: the
	// cases of a restart are left out. They are the only redelivery tests of a queue without a visibility timeout.
	Restart func(t testing.TB) driver.Queue
	// OwnDelays: the adapter itself holds back messages that are sent with a delay, so Stats does not distinguish them.
	OwnDelays bool
}

// QueueFactory opens an empty queue that shares no messages with those of other calls.
type QueueFactory func(t testing.TB) QueueSetup

// Ledger writes effects through a store and counts them from outside. Its table must have no unique constraint that
// would hide a second effect.
type Ledger struct {
	// Buffer makes an empty effects buffer (Committer.Offers); Add queues one effect for id into it, and Refuse one that
	// the database refuses.
	Buffer func(c driver.Committer) any
	Add    func(effects any, id string)
	Refuse func(effects any)
	// Transient queues an effect that the database refuses with an error that is often its own trouble (an internal error, a
	// timeout). nil: its case is left out.
	Transient func(effects any)
	// Lock has another session hold a lock until unlock is called; use queues an effect that needs it. nil: its case is left
	// out.
	Lock func(t testing.TB) (use func(effects any), unlock func())
	// AddTx does the effect for id in an open transaction. A driver.Transactor needs it.
	AddTx func(ctx context.Context, tx driver.Tx, id string) error
	// Rows queues rows as data. nil: the cases of rows are left out.
	Rows *LedgerRows
	// Count counts the committed effects of id.
	Count func(ctx context.Context, id string) (int, error)
}

// LedgerRows queues rows as data ([driver.Statements.Insert]), which a store may write together with those of other messages.
type LedgerRows struct {
	// Add queues the effect for id, as Ledger.Add does. Parent queues a row of another table, whose ids are unique. Child
	// queues a row of a third table that the database refuses unless it finds the row of its parent.
	Add    func(effects any, id string)
	Parent func(effects any, id string)
	Child  func(effects any, id, parent string)
	// Rename queues a statement that renames a row of Parent, and is refused unless there is this row. nil: the case of rows
	// among statements is left out.
	Rename func(effects any, from, to string)
}

// errLimit is how many failures one case reports in full.
const errLimit = 12

// mismatches collects failures of one case: the first few in full, then the number.
type mismatches struct {
	mu    sync.Mutex
	first []string
	total int
}

func (m *mismatches) add(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total++
	if len(m.first) < errLimit {
		m.first = append(m.first, fmt.Sprintf(format, args...))
	}
}

func (m *mismatches) report(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.first {
		t.Error(s)
	}
	if n := m.total - len(m.first); n > 0 {
		t.Errorf("and %d more", n)
	}
}

// suiteCase is one named part of a suite.
type suiteCase[S any] struct {
	name string
	run  func(t testing.TB, s S)
}

func runCases[S any](t *testing.T, cases []suiteCase[S], open func(t testing.TB) S) {
	runTimed(t, cases, open, func(S) time.Duration { return 0 })
}

// runTimed runs the cases in parallel. tolerance is how long the machine may stall in a case with this setup: if a case
// fails after a longer stall, it is repeated; 0 = never.
func runTimed[S any](t *testing.T, cases []suiteCase[S], open func(t testing.TB) S, tolerance func(s S) time.Duration) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			flake.Run(t, func(t testing.TB) {
				s := open(t)
				flake.Tolerate(t, tolerance(s))
				c.run(t, s)
			})
		})
	}
}

// standstill is how long a machine may stall in a case that relies on a visibility timeout.
func standstill(visibility time.Duration) time.Duration {
	if visibility == 0 {
		visibility = time.Second
	}
	return visibility / 5
}

// chosen returns the cases whose name begins with one of the prefixes, or all. A prefix without a case fails t.
func chosen[S any](t testing.TB, cases []suiteCase[S], only []string) []suiteCase[S] {
	t.Helper()
	for _, prefix := range only {
		if !slices.ContainsFunc(cases, func(c suiteCase[S]) bool { return strings.HasPrefix(c.name, prefix) }) {
			t.Fatalf("the suite has no case %q", prefix)
		}
	}
	return slices.DeleteFunc(cases, func(c suiteCase[S]) bool {
		return len(only) > 0 && !slices.ContainsFunc(only, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) })
	})
}

// checkCases runs the cases one after the other and collects their failures instead of failing t. With only it runs the
// cases whose name begins with one of these; a prefix without a case fails t.
func checkCases[S any](t testing.TB, cases []suiteCase[S], open func(t testing.TB) S, only []string) []string {
	t.Helper()
	var all []string
	for _, c := range chosen(t, cases, only) {
		r := &recorder{TB: t, name: c.name}
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			defer r.catch()
			c.run(r, open(r))
		}()
		<-done
		all = append(all, r.failures...)
	}
	return all
}

// recorder is a testing.TB that collects failures.
type recorder struct {
	testing.TB
	name     string
	mu       sync.Mutex
	failures []string
}

func (r *recorder) catch() {
	if v := recover(); v != nil {
		r.fail(fmt.Sprintf("panic: %v", v))
	}
}

func (r *recorder) fail(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, r.name+": "+strings.TrimSpace(s))
}

// Name is the case's name; the other methods stand in for those that would fail the surrounding test.
func (r *recorder) Name() string                      { return r.name }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.fail("failed") }
func (r *recorder) FailNow()                          { r.fail("failed"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.fail(fmt.Sprintln(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Failed reports that this case failed, whatever the others did.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// as returns an interface that a setup is known to have. It panics if it is missing.
func as[T any](s any) T {
	t, ok := driver.As[T](s)
	if !ok {
		panic("a setup lacks an interface that its case needs")
	}
	return t
}

package semeltest

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/lock"
)

// LockSetup is a store under the locks of package lock.
type LockSetup struct {
	Store driver.Store
	// Other is the same store opened a second time, as another process has it. Defaults to Store.
	Other driver.Store
	// SQL is a database for the table of the guarded resource, in which the suite makes a table "guarded"; it need not be
	// the store's. nil leaves out the SQL guard.
	SQL *sql.DB
	// Lease is the lease of locks that the suite lets expire. Defaults to 1 s.
	Lease time.Duration
}

// LockFactory opens an empty store that shares no records with those of other calls; see [StoreFactory].
type LockFactory func(t testing.TB) LockSetup

// RunLock tests that locks on a store exclude each other, are extended, expire, can be taken over and spend their
// tokens (protocol section 9). Package lock has no code of any store: stores differ in how they decide, in which order,
// and by which clock. No case depends on the speed of the machine: whether two hold a lock at once is judged by their
// own deadlines.
func RunLock(t *testing.T, open LockFactory) { runCases(t, lockCases(), lockDefaults(open)) }

// CheckLock runs the same suite, one case after the other, and returns the failures instead of failing t.
func CheckLock(t testing.TB, open LockFactory) []string {
	return checkCases(t, lockCases(), lockDefaults(open), nil)
}

func lockDefaults(open LockFactory) func(t testing.TB) LockSetup {
	return func(t testing.TB) LockSetup {
		s := open(t)
		if s.Other == nil {
			s.Other = s.Store
		}
		if s.Lease == 0 {
			s.Lease = time.Second
		}
		return s
	}
}

func lockCases() []suiteCase[LockSetup] {
	return []suiteCase[LockSetup]{
		{"S1-44 one holder at a time", testOneHolder},
		{"S1-44 unlock, and unlock again", testUnlock},
		{"FM9 the heartbeat extends", testHeldOn},
		{"FM1 expiry, takeover and the stale holder", testTakeover},
		{"FM11 a lock is taken away", testTakenAway},
		{"FM31 requests without a response", testNoResponse},
		{"FM32 unlock without a response, then another holder", testLateUnlock},
		{"FM12 tokens survive a purge", testLockPurged},
		{"law 10 an abandoned lock", testAbandoned},
		{"names that look alike", testLockNames},
		{"records that are no locks", testNotLock},
		{"S2-15 how Do ends", testLockDo},
		{"FM2 guard in SQL", testGuardSQL},
		{"FM2 guard in a header", testGuardHeader},
	}
}

// ages is a lease that no case outlives: a lock that ends earlier did not expire.
const ages = 10 * time.Minute

func newLocker(t testing.TB, s driver.Store, lease time.Duration) *lock.Locker {
	t.Helper()
	l, err := lock.New(s, lock.Options{Lease: lease, Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const lockName = "report"

// acquireLock waits for a lock, and fails after two minutes.
func acquireLock(t testing.TB, l *lock.Locker) *lock.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := l.Acquire(ctx, lockName)
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, h)
	return h
}

// endWith ends the heartbeat of a lock with the test, also when that fails.
func endWith(t testing.TB, h *lock.Held) {
	t.Cleanup(func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Unlock(done)
	})
}

// tryLock takes a lock that must be free now.
func tryLock(t testing.TB, l *lock.Locker, after *lock.Held) *lock.Held {
	t.Helper()
	h, err := l.TryAcquire(t.Context(), lockName)
	if err != nil {
		t.Fatalf("a free lock: %v", err)
	}
	endWith(t, h)
	if after != nil && h.Token() <= after.Token() {
		t.Errorf("token %d was handed out after token %d", h.Token(), after.Token())
	}
	return h
}

// stillHeld fails if a lock that is held for ages can be acquired.
func stillHeld(t testing.TB, l *lock.Locker, why string) {
	t.Helper()
	h, err := l.TryAcquire(t.Context(), lockName)
	if err == nil {
		endWith(t, h)
	}
	if !errors.Is(err, lock.ErrHeld) {
		t.Errorf("%s: another can acquire the lock (error %v), wanted ErrHeld", why, err)
	}
}

// unlock unlocks, and returns how often it had to try: on a slow machine the response may miss the timeout of a short
// lease.
func unlock(t testing.TB, h *lock.Held) (tries int) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); tries == 0 || time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		tries++
		if err = h.Unlock(context.WithoutCancel(t.Context())); err == nil {
			return tries
		}
	}
	t.Errorf("unlock: %v", err)
	return tries
}

// loses waits until a holder learns that it lost its lock.
func loses(t testing.TB, h *lock.Held) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("the holder did not learn that it lost the lock")
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the holder's context ended with %v, wanted ErrLost", cause)
	}
}

// wire is the connection of one process to a store: it can be cut, and it can lose responses.
type wire struct {
	driver.Store
	// cut: extensions fail before they are sent, like those of a stalled process.
	cut atomic.Bool
	// loseClaim, loseExtend and loseFinish count responses to lose after the request was carried out.
	loseClaim, loseExtend, loseFinish atomic.Int32
	// lost is called after a lost response of Finish.
	lost                      func()
	claims, extends, finishes atomic.Int32
}

var errCut = errors.New("the connection was cut")

func (w *wire) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	w.claims.Add(1)
	g, err := w.Store.Claim(ctx, c...)
	if w.loseClaim.Add(-1) >= 0 {
		return nil, errCut
	}
	return g, err
}

func (w *wire) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	w.extends.Add(1)
	if w.cut.Load() {
		return nil, errCut
	}
	out, err := w.Store.Extend(ctx, lease, h...)
	if w.loseExtend.Add(-1) >= 0 {
		return nil, errCut
	}
	return out, err
}

func (w *wire) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	w.finishes.Add(1)
	out, err := w.Store.Finish(ctx, f...)
	if w.loseFinish.Add(-1) >= 0 {
		if w.lost != nil {
			w.lost()
		}
		return nil, errCut
	}
	return out, err
}

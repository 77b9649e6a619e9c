package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// shell is a store as one process sees it: it injects the schedule's faults, returns Lost to a dead process, skips
// backoffs, and records what committed with a record. The engine sees queue and store as two databases (Joins is
// false), whatever they are: that leaves the gap between completion and ack in which schedules strike.
type shell struct {
	p     *Process
	inner driver.Store
	// nil if the inner store has none; driver.As does not find the shell's then.
	committer  driver.Committer
	transactor driver.Transactor
	steps      driver.StepStore

	mu    sync.Mutex
	holds map[driver.Key]driver.Hold
	open  map[*shellTx]bool
}

func newShell(p *Process, inner driver.Store) *shell {
	s := &shell{p: p, inner: inner, holds: map[driver.Key]driver.Hold{}, open: map[*shellTx]bool{}}
	s.committer, _ = driver.As[driver.Committer](inner)
	s.transactor, _ = driver.As[driver.Transactor](inner)
	s.steps, _ = driver.As[driver.StepStore](inner)
	return s
}

// Unwrap is the inner store.
func (s *shell) Unwrap() any { return s.inner }

func (s *shell) dead() bool {
	s.p.w.mu.Lock()
	defer s.p.w.mu.Unlock()
	return s.p.dead || s.p.w.over
}

// Claim decides claims in the inner store. To a dead process every key is busy.
func (s *shell) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if s.dead() {
		return s.busy(c), nil
	}
	s.note(c)
	gs, err := s.inner.Claim(ctx, c...)
	if err != nil {
		return gs, err
	}
	s.granted(gs)
	if s.acquired(gs) && s.p.strikes(CrashAtStart) {
		s.p.kill()
		return s.busy(c), nil
	}
	return gs, nil
}

func (s *shell) note(c []driver.Claim) {
	s.p.w.update(func() {
		for i := range c {
			s.p.w.keys[c[i].Key] = true
		}
	})
}

func (s *shell) busy(c []driver.Claim) []driver.Grant {
	gs := make([]driver.Grant, len(c))
	for i := range gs {
		gs[i] = driver.Grant{Verdict: driver.Busy, Hold: driver.Hold{Key: c[i].Key}, Wait: soon}
	}
	return gs
}

func (s *shell) acquired(gs []driver.Grant) bool {
	for i := range gs {
		if gs[i].Err == nil && gs[i].Verdict == driver.Acquired {
			return true
		}
	}
	return false
}

// granted remembers what the process holds.
func (s *shell) granted(gs []driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range gs {
		if gs[i].Err != nil || gs[i].Verdict != driver.Acquired {
			continue
		}
		_, again := s.holds[gs[i].Hold.Key]
		s.holds[gs[i].Hold.Key] = gs[i].Hold
		if !again {
			s.count(1)
		}
	}
}

func (s *shell) count(n int) {
	s.p.w.update(func() {
		s.p.holding += n
		if n > 0 && !s.p.around {
			s.p.runs++
		}
	})
}

func (s *shell) released(fs []driver.Finish) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range fs {
		if _, ok := s.holds[fs[i].Hold.Key]; ok {
			delete(s.holds, fs[i].Hold.Key)
			s.count(-1)
		}
	}
}

// Extend renews leases. A dead process has none.
func (s *shell) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if s.dead() {
		return allLost(len(h)), nil
	}
	return s.inner.Extend(ctx, lease, h...)
}

// Finish ends attempts in the inner store.
func (s *shell) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	ws := make([]driver.Work, len(f))
	for i := range f {
		ws[i].Finish = f[i]
	}
	return s.finish(ws, func(ws []driver.Work) ([]driver.Outcome, error) {
		fs := make([]driver.Finish, len(ws))
		for i := range ws {
			fs[i] = ws[i].Finish
		}
		return s.inner.Finish(ctx, fs...)
	})
}

// finish writes ends of attempts by write, with the faults that strike around a completion.
func (s *shell) finish(ws []driver.Work, write func([]driver.Work) ([]driver.Outcome, error)) ([]driver.Outcome, error) {
	if s.dead() {
		return allLost(len(ws)), nil
	}
	fs, completes := make([]driver.Finish, len(ws)), false
	bare := make([]driver.Work, len(ws))
	for i := range ws {
		bare[i] = ws[i]
		bare[i].Finish.RetryAfter = 0 // a schedule waits for no backoff
		fs[i] = ws[i].Finish
		completes = completes || fs[i].Final == driver.Complete
	}
	if completes && s.p.strikes(CrashBeforeComplete) {
		s.p.kill()
		return allLost(len(ws)), nil
	}
	out, err := write(bare)
	if err != nil || len(out) != len(ws) {
		return out, err
	}
	for i := range out {
		if out[i] == driver.Applied || out[i] == driver.Recovered {
			s.p.w.commit(s.p, &ws[i])
		}
	}
	switch {
	case completes && s.p.strikes(CompletionLost):
		return nil, fmt.Errorf("finish: %w", errNoReply)
	case completes && s.p.strikes(CrashBeforeAck):
		s.p.kill()
		return allLost(len(ws)), nil
	}
	s.released(fs)
	return out, nil
}

// Features are the inner store's.
func (s *shell) Features() driver.StoreFeatures { return s.inner.Features() }

// abandon rolls the open transactions of a dead process back, as its database does.
func (s *shell) abandon() {
	if s == nil {
		return
	}
	s.mu.Lock()
	var open []*shellTx
	for tx := range s.open {
		open = append(open, tx)
	}
	s.mu.Unlock()
	for _, tx := range open {
		_ = tx.Tx.Rollback(context.Background()) // its result changes nothing
	}
}

func (s *shell) expire(ctx context.Context) {
	s.mu.Lock()
	var hs []driver.Hold
	for _, h := range s.holds {
		hs = append(hs, h)
	}
	s.mu.Unlock()
	if len(hs) > 0 {
		_, _ = s.inner.Extend(ctx, soon, hs...) // at worst the lease ends by itself
	}
}

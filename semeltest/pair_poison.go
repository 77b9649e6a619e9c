package semeltest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// poisonKills exceeds the number of processes that a message may kill: two takeovers, and two runs in quarantine.
const poisonKills = 8

// testFM83Poison runs a message that kills its process, among others, until it is a dead letter: on the queue as it is,
// without delivery counts, and claimed at the commit.
func testFM83Poison(p *pair) {
	if !p.hasTx() || p.dlq == nil {
		return
	}
	for _, how := range []string{"", " uncounted", atCommit} {
		if how == atCommit && !p.mayClaimAtCommit() {
			continue
		}
		p.poison(&watched{Queue: p.Queue, uncounted: how == " uncounted", last: map[string]any{}}, how)
		if p.t.Failed() {
			p.t.Errorf("the consumer that failed:%s", how)
			return
		}
	}
}

const atCommit = " claimed at the commit"

func (p *pair) poison(q *watched, suffix string) {
	poison, fine := "poison"+suffix, []string{"fine 1" + suffix, "fine 2" + suffix}
	p.send(message("m-1"+suffix, fine[0], "x"), message("m-2"+suffix, poison, "x"), message("m-3"+suffix, fine[1], "x"))
	var dead []*started
	defer func() {
		for _, s := range dead {
			if err := <-s.done; err != nil {
				p.t.Logf("killed consumer: %v", err)
			}
		}
	}()
	for kills := 0; ; kills++ {
		if kills > poisonKills {
			p.t.Errorf("after %d kills the message is no dead letter: a run that kills its process is not counted", kills)
			return
		}
		killed := make(chan struct{})
		cfg := p.killable(q, poison, killed)
		cfg.ClaimAtCommit = suffix == atCommit
		s := p.start(cfg)
		if p.killedOrEmpty(killed) {
			s.stop()
			dead = append(dead, s)
			p.expire(q, poison)
			continue
		}
		p.halt(s)
		break
	}
	if ls, err := p.dlq.DeadLetters(p.t.Context(), 0); err != nil || len(ls) != 1 || ls[0].Key.Raw != poison {
		p.t.Errorf("dead letters are %v (%v), wanted one of the message that kills", ls, err)
	} else if err := p.dlq.DeleteDeadLetter(p.t.Context(), ls[0].ID); err != nil {
		p.t.Error(err)
	}
	for _, key := range append(fine, poison) {
		want := 1
		if key == poison {
			want = 0
		}
		if n, err := p.Ledger.Count(p.t.Context(), key); err != nil || n != want {
			p.t.Errorf("key %q has %d effects (%v), wanted %d", key, n, err, want)
		}
	}
}

// killable is a consumer that loses its queue and its store in the middle of a run of the key poison.
func (p *pair) killable(q driver.Queue, poison string, killed chan struct{}) semel.Config {
	f := NewFaults(Plan{})
	var once sync.Once
	cfg := p.config(p.Tx(func(_ context.Context, add func(string) error, a *semel.Attempt) error {
		if err := add(a.Key.Raw); err != nil || a.Key.Raw != poison {
			return err
		}
		f.Outage(true)
		once.Do(func() { close(killed) })
		return errors.New("killed")
	}))
	cfg.Queue, cfg.Store = FaultyQueue(q, f), FaultyStore(p.Store, f)
	cfg.MaxAttempts, cfg.Grace = 1, time.Millisecond
	return cfg
}

// killedOrEmpty waits until a consumer was killed, or nothing is left to deliver.
func (p *pair) killedOrEmpty(killed chan struct{}) bool {
	p.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		select {
		case <-killed:
			return true
		case <-time.After(10 * time.Millisecond):
		}
		if st, err := as[driver.QueueInspector](p.Queue).Stats(p.t.Context()); err == nil && st.Empty() {
			return false
		}
		if time.Now().After(deadline) {
			p.t.Fatal("after three minutes the message is neither delivered nor settled")
		}
	}
}

// expire ends the lease and the visibility of a killed run at once, if the adapters can; otherwise they expire.
func (p *pair) expire(q *watched, key string) {
	ctx := p.t.Context()
	if ins, ok := driver.As[driver.RecordInspector](p.Store); ok {
		if r, ok, err := ins.Record(ctx, driver.Key{Consumer: "pair", Raw: key}); err == nil && ok {
			_, _ = p.Store.Extend(ctx, time.Millisecond, r.Hold())
		}
	}
	if receipt := q.latest(key); receipt != nil && q.Features().Extends {
		_, _ = q.Extend(ctx, time.Millisecond, receipt)
	}
}

// watched is a queue whose receipts are remembered. uncounted makes it one that does not count deliveries.
type watched struct {
	driver.Queue
	uncounted bool

	mu   sync.Mutex
	last map[string]any
}

func (q *watched) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Counts = f.Counts && !q.uncounted
	return f
}

func (q *watched) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, limit)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range ds {
		q.last[ds[i].Header("key")] = ds[i].Receipt
		if q.uncounted {
			ds[i].Count = 0
		}
	}
	return ds, err
}

func (q *watched) latest(key string) any {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last[key]
}

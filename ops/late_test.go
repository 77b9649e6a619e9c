package ops

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// late is a shop with one late duplicate: its key ended as h says, and its record expired. first is the effect key of the run.
func late(t *testing.T, h func(a *semel.Attempt) error) (s *shop, first string, l driver.DeadLetter) {
	t.Helper()
	var days atomic.Int64
	began := time.Now()
	db := memory.Open(memory.WithClock(func() time.Time { return began.AddDate(0, 0, int(days.Load())) }))
	s = &shop{t: t, db: db, q: db.Queue("q"), fault: &faulty{Queue: db.Queue("q"), Store: db.Store()}}
	if err := db.Store().SetLongTerm(t.Context(), "q", 400*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	key := map[string]string{"Idempotency-Key": "k"}
	s.send(semel.Message{ID: "1", Headers: key})
	s.work(nil, func(a *semel.Attempt) error { first = a.EffectKey(""); return h(a) })
	days.Store(100)
	db.Wake()
	if swept, _, err := db.Store().Sweep(t.Context(), 0, 0); err != nil || swept.Expired != 1 {
		t.Fatalf("swept %+v, %v", swept, err)
	}
	s.send(semel.Message{ID: "2", Headers: key})
	if got := s.work(nil, works); len(got) != 0 {
		t.Fatalf("a late duplicate ran: %v", got)
	}
	for _, l = range s.deadLetters() {
		if l.Kind == driver.DeadLetterLate {
			return s, first, l
		}
	}
	t.Fatalf("dead letters are %+v", s.deadLetters())
	return nil, "", l
}

// A late dead letter of a completed key runs again only deliberately, and under a new effect key.
func TestFM41_LateDeadLetterOfACompletedKey(t *testing.T) {
	s, first, l := late(t, works)
	for _, mode := range []Mode{Skip, Verify, Rerun} {
		r, err := s.box().Redrive(t.Context(), l, Options{Mode: mode, Keep: time.Hour})
		if err != nil || r.Outcome != Refused || len(s.deadLetters()) != 1 || s.record("k").State != driver.Expired {
			t.Fatalf("mode %s: %+v, %v", mode, r, err)
		}
	}
	r, err := s.box().Redrive(t.Context(), l, Options{Mode: Rerun, NewGeneration: true, Keep: time.Hour})
	if err != nil || r.Outcome != Redriven {
		t.Fatal(r, err)
	}
	if got := s.work(nil, works); len(got) != 1 || got[0] == first || len(s.deadLetters()) != 0 {
		t.Errorf("effects %v after %s, dead letters %v", got, first, s.deadLetters())
	}
}

// A late dead letter of a failed key, or the dead letter of the run, opens the key by its token.
func TestFM41_LateDeadLetterOfAFailedKey(t *testing.T) {
	for _, kind := range []driver.DeadLetterKind{driver.DeadLetterLate, driver.DeadLetterFailed} {
		s, first, l := late(t, permanent)
		for _, o := range s.deadLetters() {
			if o.Kind == kind {
				l = o
			}
		}
		r, err := s.box().Redrive(t.Context(), l, Options{Mode: Skip, Keep: time.Hour})
		if err != nil || r.Outcome != Redriven {
			t.Fatal(r, err)
		}
		if got := s.work(nil, works); len(got) != 1 || got[0] != first {
			t.Errorf("%s: effects %v, wanted one with %s", kind, got, first)
		}
	}
}

// Discarding a late dead letter leaves the record unchanged.
func TestFM41_LateDeadLetterDiscarded(t *testing.T) {
	for _, h := range []func(*semel.Attempt) error{works, permanent} {
		s, _, l := late(t, h)
		before, n := s.record("k"), len(s.deadLetters())
		r, err := s.box().Discard(t.Context(), l, Options{})
		if after := s.record("k"); err != nil || r.Outcome != Discarded || len(s.deadLetters()) != n-1 || after.State != before.State || after.Disposed {
			t.Errorf("%+v, %v: %+v", r, err, after)
		}
	}
}

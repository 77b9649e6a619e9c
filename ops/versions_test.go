package ops

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// versioned is a queue whose messages replace each other; run handles those versions that are sent, one after the other,
// and fails those named.
type versioned struct {
	*shop
	park time.Duration
}

func (s *versioned) config(c *semel.Config) {
	c.Key, c.Versions = key.FromJSON("/id"), key.BySequence("/v")
	c.Versions.Park = s.park
}

func (s *versioned) run(fail error, versions ...int) (ran string) {
	s.t.Helper()
	for _, v := range versions {
		m := semel.Message{Body: fmt.Appendf(nil, `{"id":"e","v":%d}`, v), SentAt: time.Now().Add(-time.Hour)}
		s.send(m)
		ran += s.drain(fail)
	}
	return ran
}

// drain handles what is in the queue.
func (s *versioned) drain(fail error) (ran string) {
	s.work(s.config, func(a *semel.Attempt) error {
		ran += " " + a.Version().String()
		return fail
	})
	return ran
}

func (s *versioned) redrive(n int) Result {
	s.t.Helper()
	r, err := s.box().Redrive(s.t.Context(), s.deadLetters()[n], Options{Keep: time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

var errBad = semel.NotApplied(semel.Permanent(errors.New("bad")))

// TestRedriveOfVersions: a dead letter goes by its version, not by what became of the record since.
func TestRedriveOfVersions(t *testing.T) {
	t.Run("overtaken", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(errBad, 2)
		s.run(nil, 3)
		if r := s.redrive(0); r.Outcome != Overtaken || r.Why != "version 2 already processed (current: 3)" || len(s.deadLetters()) != 0 {
			t.Errorf("%+v, %d dead letters", r, len(s.deadLetters()))
		}
		if ran := s.drain(nil); ran != "" {
			t.Errorf("ran%s", ran)
		}
	})
	t.Run("an older one was applied since", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(errBad, 3)
		s.run(nil, 2)
		if r := s.redrive(0); r.Outcome != Redriven || !strings.Contains(r.Why, "version 2, 2 applied") || len(s.deadLetters()) != 0 {
			t.Errorf("%+v, %d dead letters", r, len(s.deadLetters()))
		}
		if ran := s.drain(nil); ran != " 3" || s.record("e").Watermark.Applied != driver.IntVersion(3) {
			t.Errorf("ran%s, record %+v", ran, s.record("e"))
		}
	})
	t.Run("its own", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(errBad, 2)
		if r := s.redrive(0); r.Outcome != Redriven || s.record("e").Generation != 2 {
			t.Errorf("%+v, record %+v", r, s.record("e"))
		}
		if ran := s.drain(nil); ran != " 2" {
			t.Errorf("ran%s", ran)
		}
	})
	t.Run("its version was applied by another message", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(errBad, 3)
		s.run(nil, 2, 3)
		if r := s.redrive(0); r.Outcome != Redriven {
			t.Errorf("%+v", r)
		}
		if ran := s.drain(nil); ran != "" || len(s.deadLetters()) != 0 {
			t.Errorf("ran%s, dead letters %+v", ran, s.deadLetters())
		}
	})
}

// TestLateDeadLetters: what came into a gap that was passed over cannot take its place any more; what came behind a newer
// version of unknown outcome can when that one has ended.
func TestLateDeadLetters(t *testing.T) {
	t.Run("passed over", func(t *testing.T) {
		s := &versioned{shop: open(t), park: time.Millisecond}
		s.run(nil, 1, 3, 2)
		l := s.deadLetters()[0]
		if r := s.redrive(0); l.Kind != driver.DeadLetterLate || r.Outcome != Refused || !strings.Contains(r.Why, "passed over") || len(s.deadLetters()) != 1 {
			t.Fatalf("%+v, %+v", l, r)
		}
		r, err := s.box().Discard(t.Context(), l, Options{})
		if err != nil || r.Outcome != Discarded || len(s.deadLetters()) != 0 || s.record("e").State != driver.Completed {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("behind a newer one in doubt", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(semel.Permanent(errors.New("outcome unknown")), 3)
		s.run(nil, 2)
		ls := s.deadLetters()
		if len(ls) != 2 || ls[1].Kind != driver.DeadLetterLate {
			t.Fatalf("%+v", ls)
		}
		if r := s.redrive(1); r.Outcome != Refused || !strings.Contains(r.Why, "may have been applied") {
			t.Errorf("%+v", r)
		}
		if d, err := s.box().Discard(t.Context(), ls[1], Options{DryRun: true}); err != nil || d.Outcome != Discarded || s.record("e").Disposed {
			t.Errorf("%+v %v: the newer one's record was touched", d, err)
		}
		if r := s.redrive(0); r.Outcome != Redriven {
			t.Fatalf("%+v", r)
		}
		if ran := s.drain(nil); ran != " 3" {
			t.Errorf("ran%s", ran)
		}
		if r := s.redrive(0); r.Outcome != Overtaken || len(s.deadLetters()) != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("sent again when the newer one surely had no effect", func(t *testing.T) {
		s := &versioned{shop: open(t)}
		s.run(semel.Permanent(errors.New("outcome unknown")), 3)
		s.run(nil, 2)
		if r, err := s.box().Redrive(t.Context(), s.deadLetters()[0], Options{Mode: Rerun, Keep: time.Hour}); err != nil || r.Outcome != Redriven {
			t.Fatalf("%+v %v", r, err)
		}
		s.drain(errBad)
		var late driver.DeadLetter
		for _, l := range s.deadLetters() {
			if l.Kind == driver.DeadLetterLate {
				late = l
			}
		}
		if r, err := s.box().Redrive(t.Context(), late, Options{}); err != nil || r.Outcome != Redriven {
			t.Fatalf("%+v %v", r, err)
		}
		if ran := s.drain(nil); ran != " 2" {
			t.Errorf("ran%s", ran)
		}
	})
}

// TestResolveLeavesOtherVersionsDeadLetters: only the dead letter of the version that is resolved is sent or deleted.
func TestResolveLeavesOtherVersionsDeadLetters(t *testing.T) {
	s := &versioned{shop: open(t)}
	once := func(versions ...int) {
		for _, v := range versions {
			s.send(semel.Message{Body: fmt.Appendf(nil, `{"id":"e","v":%d}`, v)})
			s.work(func(c *semel.Config) { s.config(c); c.Takeover = semel.Once }, func(*semel.Attempt) error { return errors.New("outcome unknown") })
		}
	}
	once(2, 3)
	if len(s.deadLetters()) != 2 {
		t.Fatalf("%+v", s.deadLetters())
	}
	if _, err := s.box().Resolve(t.Context(), s.record("e"), driver.FailedState, nil, Options{Keep: time.Hour, By: "me"}); err != nil {
		t.Fatal(err)
	}
	if ls := s.deadLetters(); len(ls) != 1 || ls[0].Version != driver.IntVersion(2) {
		t.Errorf("%+v", ls)
	}
}

// TestEditKeepsTheVersion: an edit that makes another version of a message is refused.
func TestEditKeepsTheVersion(t *testing.T) {
	s := &versioned{shop: open(t)}
	s.run(errBad, 2)
	l := s.deadLetters()[0]
	e := Edit{Body: []byte(`{"id":"e","v":4}`), Key: key.FromJSON("/id"), Fingerprint: key.FingerprintBody()}
	for _, of := range []key.VersionFunc{nil, key.BySequence("/v").Of} {
		e.Version = of
		var refused *RefusedError
		if _, err := s.box().Edit(t.Context(), l, e); !errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
	}
	e.Body = []byte(`{"id":"e","v":2,"hinted":true}`)
	if _, err := s.box().Edit(t.Context(), l, e); err != nil {
		t.Fatal(err)
	}
	if r := s.redrive(0); r.Outcome != Redriven || s.drain(nil) != " 2" {
		t.Errorf("%+v", r)
	}
}

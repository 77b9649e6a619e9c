package ops

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

func TestRedriveModes(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   Mode
		config func(*semel.Config)
		want   Outcome
		why    string
		doubt  bool
	}{
		{"skip keeps the doubt", Skip, nil, Redriven, "", true},
		{"verify leaves doubt without a probe alone", Verify, nil, Refused, "no worker asks first", true},
		{"verify redrives where a probe asks", Verify, probing, Redriven, "", true},
		{"rerun lifts the doubt", Rerun, nil, Redriven, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			s.send(semel.Message{ID: "k"})
			retried := func(cfg *semel.Config) {
				cfg.MaxAttempts, cfg.Backoff = 2, semel.Backoff{Min: time.Millisecond, Max: time.Millisecond}
				if c.config != nil {
					c.config(cfg)
				}
			}
			s.work(retried, fails)
			l := s.deadLetters()[0]
			dry, err := s.box().Redrive(t.Context(), l, Options{Mode: c.mode, DryRun: true})
			if err != nil || dry.Outcome != c.want || len(s.deadLetters()) != 1 || s.fault.calls != 0 {
				t.Errorf("dry run: %+v %v, %d calls", dry, err, s.fault.calls)
			}
			r, err := s.box().Redrive(t.Context(), l, Options{Mode: c.mode, Keep: time.Hour})
			if err != nil || r.Outcome != c.want || !strings.Contains(r.Why, c.why) {
				t.Errorf("%+v %v", r, err)
			}
			if got := s.record("k"); got.Unknown != c.doubt {
				t.Errorf("record %+v", got)
			}
		})
	}
}

func probing(c *semel.Config) {
	c.Takeover = semel.Probe
	c.Probe = func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeNotApplied, nil }
}

// A completed key is dropped, and run again only on purpose: with another effect key.
func TestRedriveCompleted(t *testing.T) {
	s := open(t)
	s.send(semel.Message{ID: "k"})
	first := s.work(nil, works)
	deadLetter := driver.DeadLetter{
		ID: "l", Kind: driver.DeadLetterFailed, Key: semel.Key{Consumer: "q", Raw: "k"}, Generation: 1, Token: 1, Message: semel.Message{ID: "k", Queue: "q"},
	}
	put := func() {
		if err := s.q.PutDeadLetter(t.Context(), deadLetter); err != nil {
			t.Fatal(err)
		}
	}
	put()
	for _, o := range []Options{{Mode: Skip}, {Mode: Verify}, {Mode: Rerun}} {
		r, err := s.box().Redrive(t.Context(), deadLetter, o)
		if err != nil || r.Outcome != Dropped || len(s.deadLetters()) != 0 {
			t.Errorf("%+v: %+v %v", o, r, err)
		}
		put()
	}
	r, err := s.box().Redrive(t.Context(), deadLetter, Options{Mode: Rerun, NewGeneration: true, Keep: time.Hour})
	if err != nil || r.Outcome != Redriven {
		t.Fatalf("%+v %v", r, err)
	}
	if again := s.work(nil, works); len(again) != 1 || again[0] == first[0] {
		t.Errorf("effects %v, then %v", first, again)
	}
}

func TestRedriveRefusals(t *testing.T) {
	s := open(t)
	s.send(semel.Message{ID: "1", Headers: map[string]string{"idempotency-key": "k"}, Body: []byte("one")},
		semel.Message{ID: "2", Headers: map[string]string{"idempotency-key": "k"}, Body: []byte("two")}, semel.Message{ID: "u"})
	s.work(func(c *semel.Config) { c.Fingerprint, c.Takeover = key.FingerprintBody(), semel.Once }, func(a *semel.Attempt) error {
		if a.ID == "u" {
			return fails(a)
		}
		return nil
	})
	ls := s.deadLetters()
	if len(ls) != 2 {
		t.Fatalf("dead letters %+v", ls)
	}
	for _, l := range ls {
		r, err := s.box().Redrive(t.Context(), l, Options{Mode: Rerun})
		if err != nil || r.Outcome != Refused || r.Why == "" {
			t.Errorf("%s: %+v %v", l.Kind, r, err)
		}
		d, err := s.box().Discard(t.Context(), l, Options{})
		if want := map[driver.DeadLetterKind]Outcome{driver.DeadLetterMismatch: Discarded, driver.DeadLetterUncertain: Refused}[l.Kind]; err != nil || d.Outcome != want {
			t.Errorf("%s: %+v %v", l.Kind, d, err)
		}
	}
}

func TestResolve(t *testing.T) {
	for _, as := range []driver.State{driver.Completed, driver.FailedState} {
		s := open(t)
		s.send(semel.Message{ID: "k"})
		s.work(once, fails)
		for range 2 { // it can be repeated
			if sent, err := s.box().Resolve(t.Context(), s.record("k"), as, []byte("r"), Options{Keep: time.Hour, By: "test"}); err != nil || sent != "" {
				t.Fatalf("%s: %q %v", as, sent, err)
			}
		}
		s.send(semel.Message{ID: "k"})
		if got := s.work(once, works); len(got) > 0 || s.record("k").State != as || len(s.deadLetters()) > 0 {
			t.Errorf("%s: effects %v, record %s, dead letters %v", as, got, s.record("k").State, s.deadLetters())
		}
		wrong := (*NotUncertainError)(nil)
		if _, err := s.box().Resolve(t.Context(), s.record("k"), driver.Released, nil, Options{By: "test"}); !errors.As(err, &wrong) {
			t.Errorf("got %v", err)
		}
	}
}

func TestNewBox(t *testing.T) {
	db := memory.Open()
	if _, err := NewQueue(db.Queue("q"), db.Store()); err != nil {
		t.Error(err)
	}
	if _, err := NewQueue(struct{ driver.Queue }{db.Queue("q")}, db.Store()); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

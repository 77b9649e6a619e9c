package ops

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

func bodies(c *semel.Config) { c.Fingerprint = key.FingerprintBody() }

func newBody(body string) Edit {
	return Edit{Body: []byte(body), Key: key.ByID, Fingerprint: key.FingerprintBody()}
}

// TestFM81: whatever step an edit or its redrive stops at, repeating both runs the new payload once, in the next generation.
// Nothing is a mismatch.
func TestFM81_EditedDeadLetterRuns(t *testing.T) {
	crashes(t, func(s *shop) {
		s.send(semel.Message{ID: "k", Body: []byte("broken")})
		s.work(bodies, permanent)
	}, func(s *shop) error {
		for _, l := range s.deadLetters() {
			if _, err := s.box().Edit(s.t.Context(), l, newBody("hinted")); err != nil {
				return err
			}
		}
		return redriveAll(s)
	}, func(t *testing.T, s *shop) {
		s.t = t
		ran := ""
		got := s.work(bodies, func(a *semel.Attempt) error {
			ran += string(a.Body) + a.Header(headerEdited)
			return nil
		})
		if ls := s.deadLetters(); len(got) != 1 || ran != "hinted" || len(ls) > 0 {
			t.Errorf("%d effects, of body %q; dead letters %+v", len(got), ran, ls)
		}
		if r := s.record("k"); r.Generation != 2 || r.State != driver.Completed {
			t.Errorf("record %+v", r)
		}
	})
}

// A message that is edited without the mark is what FM81 is about: a mismatch forever.
func TestFM81_WithoutTheMark(t *testing.T) {
	s := open(t)
	s.send(semel.Message{ID: "k", Body: []byte("broken")})
	s.work(bodies, permanent)
	l := s.deadLetters()[0]
	l.Message.Body = []byte("hinted")
	if _, err := s.box().Redrive(t.Context(), l, Options{Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if got := s.work(bodies, works); len(got) != 0 || len(s.deadLetters()) != 1 || s.deadLetters()[0].Kind != driver.DeadLetterMismatch {
		t.Errorf("effects %v, dead letters %+v", got, s.deadLetters())
	}
}

func TestEditRefuses(t *testing.T) {
	s := open(t)
	s.send(semel.Message{ID: "k", Body: []byte(`{"id":"k"}`)})
	s.work(bodies, permanent)
	l := s.deadLetters()[0]
	uncertain := l
	uncertain.Kind = driver.DeadLetterUncertain
	for name, c := range map[string]struct {
		l    driver.DeadLetter
		e    Edit
		want string
	}{
		"uncertain":     {uncertain, newBody("x"), "only those of kind failed"},
		"another key":   {l, Edit{Headers: map[string]string{"idempotency-key": "other"}, Key: key.ByID}, "changes its key"},
		"no key":        {l, Edit{Body: []byte("{}"), Key: key.FromJSON("/id"), Fingerprint: key.FingerprintBody()}, "changes its key"},
		"wrong --key":   {l, Edit{Body: []byte("{}"), Key: key.FromJSON("/order")}, "not the one that --key makes"},
		"not compared":  {l, Edit{Body: []byte("{}"), Key: key.ByID}, "in another way"},
		"other recipe":  {l, Edit{Body: []byte("{}"), Key: key.ByID, Fingerprint: key.FingerprintJSON("/a")}, "in another way"},
		"kind mismatch": {driver.DeadLetter{Kind: driver.DeadLetterMismatch}, newBody("x"), "only those of kind failed"},
	} {
		s.fault.calls = 0
		_, err := s.box().Edit(t.Context(), c.l, c.e)
		if no := (*RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), c.want) || no.Hint == "" || s.fault.calls != 0 {
			t.Errorf("%s: %v, %d writes", name, err, s.fault.calls)
		}
	}
	if same, err := s.box().Edit(t.Context(), l, newBody(`{"id":"k"}`)); err != nil || same.ID != l.ID || s.fault.calls != 0 {
		t.Errorf("an edit that changes nothing: %v, %v", same.ID, err)
	}
	l.Message.Headers = map[string]string{headerEdited: "zz"}
	if r, err := s.box().Redrive(t.Context(), l, Options{}); err != nil || r.Outcome != Refused {
		t.Errorf("a dead letter with a broken mark: %+v %v", r, err)
	}
}

// TestEditWithoutKey: the dead letter of an unusable key has no record; the edit may give it a key.
func TestEditWithoutKey(t *testing.T) {
	s := open(t)
	byHeader := func(c *semel.Config) { c.Key = key.FromHeader("order") }
	s.send(semel.Message{ID: "1", Body: []byte("x")})
	s.work(byHeader, works)
	l, err := s.box().Edit(t.Context(), s.deadLetters()[0], Edit{Headers: map[string]string{"order": "o1"}, Key: key.FromHeader("order")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.box().Redrive(t.Context(), l, Options{Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if got := s.work(byHeader, works); len(got) != 1 || s.record("o1").State != driver.Completed {
		t.Errorf("effects %v, record %+v", got, s.record("o1"))
	}
}

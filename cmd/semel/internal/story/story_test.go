package story

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 2 { // two workers, one file
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			j.Add(semel.Event{Kind: semel.EventSettled, At: at, Key: semel.Key{Consumer: "c", Raw: "k"}, Action: driver.Dead, Outcome: driver.Lost, Err: errors.New("why")})
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j.Add(semel.Event{}) // after the end: ignored
	}
	// A crash cuts the last line off.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"kind":"sett`)
	_ = f.Close()
	n := 0
	err = Read(path, func(l Line) {
		n++
		if l.Action != "dead" || l.Outcome != "lost" || l.Error != "why" || l.Key != "k" || !l.At.Equal(at) {
			t.Fatalf("%+v", l)
		}
	})
	if err != nil || n != 2000 {
		t.Errorf("%d lines, %v", n, err)
	}
	if err := os.WriteFile(path, []byte("{}\nnonsense\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, func(Line) {}); err == nil || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("got %v", err)
	}
}

// Every state has a verdict, and the doubts are counted as the protocol does.
func TestTell(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name   string
		r      driver.Record
		extra  int
		want   string
		advice bool
	}{
		{"absent", driver.Record{}, 0, "no record of this key", false},
		{"clean", driver.Record{State: driver.Completed, Generation: 1, Attempt: 1, Failures: 0}, 0, "no moment of doubt: the effect happened once", false},
		{"failed without effect", driver.Record{State: driver.Completed, Generation: 1, Failures: 2}, 0, "no moment of doubt", false},
		{"two doubts", driver.Record{State: driver.Completed, Generation: 1, Uncertainty: 2, Failures: 2}, 2, "up to twice more", false},
		{"redriven", driver.Record{State: driver.Completed, Generation: 2, Uncertainty: 1}, 1, "up to once more", false},
		{"failed", driver.Record{State: driver.FailedState, Generation: 1, Uncertainty: 1}, 1, "failed for good", true},
		{"disposed", driver.Record{State: driver.FailedState, Generation: 1, Disposed: true}, 0, "was discarded", false},
		{"released", driver.Record{State: driver.Released, Generation: 1}, 0, "waits for its next run; no earlier run", false},
		{"running", driver.Record{State: driver.InProgress, Generation: 1, Uncertainty: 1}, 1, "A worker has it until", true},
		{"uncertain", driver.Record{State: driver.Uncertain, Generation: 1, Uncertainty: 1}, 1, "Nobody knows", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.CreatedAt, c.r.UpdatedAt, c.r.CompletedAt, c.r.LeaseUntil = t0, t0, t0, t0
			s := Tell(c.r, nil)
			if s.ExtraEffects != c.extra || !strings.Contains(s.Verdict, c.want) || (s.Advice != "") != c.advice {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Every decision and kind of event that matters is a sentence, in the order of time.
func TestTellEvents(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var lines []Line
	add := func(l Line) {
		l.At = t0.Add(-time.Duration(len(lines)) * time.Second) // in the wrong order
		lines = append(lines, l)
	}
	for _, d := range []semel.Decision{
		semel.Executed, semel.Replayed, semel.BusyDeferred, semel.Mismatched, semel.Retried, semel.DeadLettered, semel.ParkedUncertain,
		semel.Fenced, semel.Dropped, semel.GivenBack, semel.Expired,
	} {
		add(Line{Kind: "decided", Decision: string(d), MessageID: "m", Cause: string(semel.Redelivery)})
	}
	add(Line{Kind: "doubt", Reason: "because"})
	add(Line{Kind: "started", Takeover: true})
	add(Line{Kind: "extended", Lease: true, Outcome: "lost"})
	add(Line{Kind: "settled", Outcome: "unknown"})
	add(Line{Kind: "received", Count: 23})
	told := Tell(driver.Record{}, lines).Sentences
	if len(told) != len(lines) {
		t.Fatalf("%d sentences of %d events", len(told), len(lines))
	}
	doubts := 0
	for i, s := range told {
		if i > 0 && s.At.Before(told[i-1].At) {
			t.Errorf("out of order: %v", s)
		}
		if s.Doubt {
			doubts++
		}
	}
	if doubts != 1 || !strings.Contains(told[0].Text, "23rd time") {
		t.Errorf("%d doubts, %q", doubts, told[0].Text)
	}
	if quiet := Tell(driver.Record{}, []Line{{Kind: "settled", Outcome: "applied"}, {Kind: "extended", Outcome: "applied"}}); len(quiet.Sentences) != 0 {
		t.Errorf("%+v", quiet.Sentences)
	}
}

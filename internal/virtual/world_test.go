package virtual

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEventsComeInOrder: by time, and in the order of their addition at one time.
func TestEventsComeInOrder(t *testing.T) {
	var q Events[int]
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var want []time.Duration
		for n := range 60 {
			at := time.Duration(r.IntN(20))
			want = append(want, at*1000+time.Duration(n))
			q.Add(at, n)
		}
		slices.Sort(want)
		for _, x := range want {
			if at, n := q.Next(); at*1000+time.Duration(n) != x {
				t.Fatalf("event %d of %d, wanted %d", n, at, x)
			}
		}
		q.Add(1, 1)
		q.Reset()
	}
}

// fickle violates something else every time.
type fickle struct {
	World
	times int
}

func (w *fickle) Simulate(s Schedule, t *Trace) (int, *Violation) {
	w.Begin(s, 1, t)
	w.times++
	w.Log(2, "about another key")
	w.Fail("I1", 1, "violation %d", w.times)
	w.Fail("I2", 1, "a later one")
	return 1, w.Broken
}

// TestViolationIsExplained: with names, the history of its key, and a warning that it cannot be reproduced.
func TestViolationIsExplained(t *testing.T) {
	k := &Kind{
		Prefix: "fickle: ", New: func() Simulator { return &fickle{} }, Done: func(Simulator) { /* nothing */ },
		Faults: []string{"crash"}, Mistakes: []Mistake{{}, {Name: "mistake", Invariants: "I10 I11"}},
	}
	x := &Explorer{Context: t.Context(), First: 5, Workers: 1, Progress: func(string) { /* nobody asks */ }}
	x.CrashPoints(k, 1)
	if len(x.Violations) != 2 {
		t.Fatalf("%d violations, wanted that of the base and that of the crash point", len(x.Violations))
	}
	v := &x.Violations[1]
	if want := "I1 violated in seed 5 (crash at operation 0): fickle: violation 3"; v.String() != want {
		t.Errorf("%v, wanted %s", v, want)
	}
	if strings.Contains(v.Trace, "another key") || !strings.Contains(v.Trace, "   1 ") || !strings.Contains(v.Trace, "not deterministic") {
		t.Errorf("history:\n%s", v.Trace)
	}
	if n := x.Seeds(k, 100); n > 8 || len(x.Violations) != maxViolations {
		t.Errorf("%d seeds and %d violations, wanted an end after ten", n, len(x.Violations))
	}
	if r := x.FindMistakes(k); r[0].Found || r[0].Tried != seedsPerMistake || k.Mistakes[1].Breaks("I1") || !k.Mistakes[1].Breaks("I11") {
		t.Errorf("I1 is none of the mistake's invariants: %+v", r[0])
	}
}

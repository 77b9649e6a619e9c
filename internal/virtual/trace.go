package virtual

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant string
	Schedule  // At is -1 unless a fault was planted
	// FaultName and MistakeName say what was planted, "" for nothing.
	FaultName, MistakeName string
	Key                    int // that it is about; -1 = all
	Detail                 string
	// Trace is the numbered history of the key.
	Trace string
}

func (v *Violation) String() string {
	s := fmt.Sprintf("%s violated in seed %d", v.Invariant, v.Seed)
	if v.At >= 0 {
		s += fmt.Sprintf(" (%s at operation %d)", v.FaultName, v.At)
	}
	if v.MistakeName != "" {
		s += " under the mutant " + v.MistakeName
	}
	return s + ": " + v.Detail
}

// Trace is the readable history of one simulation. Its zero value is empty.
type Trace struct{ lines []line }

type line struct {
	key  int
	text string
}

func (t *Trace) add(now time.Duration, key int, text string) {
	t.lines = append(t.lines, line{key, fmt.Sprintf("%10.3fs  %s", now.Seconds(), text)})
}

// Of returns the numbered lines about a key, or all for -1.
func (t *Trace) Of(key int) string {
	var b strings.Builder
	n := 0
	for _, l := range t.lines {
		if key < 0 || l.key < 0 || l.key == key {
			n++
			fmt.Fprintf(&b, "%4d %s\n", n, l.text)
		}
	}
	return b.String()
}

// Replay simulates one seed and prints its history, and its verdict.
func Replay(s Simulator, seed uint64, out io.Writer) error {
	t := &Trace{}
	verdict := "no invariant is violated"
	if _, v := s.Simulate(Random(seed), t); v != nil {
		verdict = v.String()
	}
	if _, err := fmt.Fprint(out, t.Of(-1), verdict, "\n"); err != nil {
		return fmt.Errorf("print the history of seed %d: %w", seed, err)
	}
	return nil
}

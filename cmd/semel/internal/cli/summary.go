package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/semel-dev/semel"
)

// summary is the output of a worker at its end.
type summary struct {
	semel.Summary
	// LentKeys counts deliveries without a key of --key that took that of --on-missing-key id.
	LentKeys int64 `json:"lent_keys,omitempty"`
}

// report prints the summary.
func (s *shift) report(sum semel.Summary) error {
	lent := s.lent.n.Load()
	return s.p.Object(summary{sum, lent}, func(w io.Writer) error {
		line := fmt.Sprintf("received %d, effects %d", sum.Received, sum.Effects)
		for _, c := range []struct {
			what string
			n    int64
		}{
			{"replayed", sum.Replayed}, {"stale", sum.Stale}, {"retried", sum.Retried}, {"dead", sum.Dead}, {"uncertain", sum.Uncertain},
			{"dropped", sum.Dropped}, {"mismatched", sum.Mismatched}, {"busy", sum.Busy}, {"taken over", sum.TakenOver},
			{"fenced", sum.Fenced}, {"rejected", sum.Rejected}, {"keys lent", lent},
			{"replayed with another payload", sum.OtherPayload}, {"cache hits", sum.CacheHits},
		} {
			if c.n > 0 {
				line += fmt.Sprintf(", %s %d", c.what, c.n)
			}
		}
		_, err := fmt.Fprintf(w, "%s, in %s\n", line, time.Since(s.began).Round(time.Millisecond))
		return err
	})
}

// guarantee is the sentence about effects, and where to read what it rests on; with --verbose all of it.
func (s *shift) guarantee(p semel.Guarantees) string {
	if s.verbose {
		return p.String()
	}
	kept := ""
	if !p.Durable {
		kept = " Messages or records can be lost."
	}
	return fmt.Sprintf("%s%s (more: semel doctor, https://github.com/semel-dev/semel#what-is-guaranteed)", p.Effects, kept)
}

package semel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Guarantees states what a configuration guarantees, and under which assumptions.
type Guarantees struct {
	// Mode is the protocol's name for it: A, A2 or B/C, and with versions D over one of these.
	Mode string `json:"mode"`
	// Effects is the guarantee for effects, in one sentence or two.
	Effects string `json:"effects"`
	// Together lists what commits in one write.
	Together []string `json:"together"`
	// Assumptions must hold for the guarantee.
	Assumptions []string `json:"assumptions"`
	// Durable: messages and records survive the end of every process.
	Durable bool `json:"durable"`
}

// String returns the line that workers print when they start.
func (p Guarantees) String() string {
	return fmt.Sprintf("%s Together in one write: %s. (mode %s; %s)",
		p.Effects, strings.Join(p.Together, ", "), p.Mode, strings.Join(p.Assumptions, "; "))
}

// Guarantee returns what a configuration guarantees, without running it. Errors are those of New.
func Guarantee(cfg Config) (Guarantees, error) {
	c, err := New(cfg)
	if err != nil {
		return Guarantees{}, err
	}
	return c.Guarantee(), nil
}

// Guarantee returns what this consumer guarantees.
func (c *Consumer) Guarantee() Guarantees {
	p := Guarantees{Durable: c.store.Durable && c.queue.Durable}
	record := []string{"record", "result"}
	if c.joins {
		record = append(record, "dead letter", "ack")
	}
	if c.emits() {
		record = append(record, "emitted messages")
	}
	switch {
	case c.batch != nil:
		p.Mode = "B/C"
		p.Effects = "What the handler does inside its transaction, or queues for it, takes effect exactly once per key; " +
			"anything else it does can happen more than once."
		p.Together = append([]string{"the batch's transaction"}, record...)
	case c.mode == machine.Open:
		p.Mode = "B/C"
		p.Effects = "What the handler does inside its transaction takes effect exactly once per key; anything else it does " +
			"can happen more than once."
		p.Together = append([]string{"the handler's transaction"}, record...)
	case c.tx != nil:
		p.Mode = "A2"
		p.Effects = "The effects that the handler queues happen exactly once per key; anything else it does can happen " +
			"more than once."
		if c.cfg.ClaimAtCommit {
			p.Effects = "The effects that the handler queues happen exactly once per key; first deliveries are claimed at their " +
				"commit, so anything else it does can happen more than once, and no record shows it."
		}
		p.Together = append([]string{"queued effects"}, record...)
	default:
		p.Mode = "A"
		p.Effects = c.claimModeEffects()
		p.Together = record
	}
	p.Assumptions = c.assumptions()
	c.versionsGuarantee(&p)
	return p
}

// claimModeEffects states what a claim guarantees for an effect outside the store, by takeover policy.
func (c *Consumer) claimModeEffects() string {
	switch c.cfg.Takeover {
	case Probe:
		return "Each key is completed at most once and nothing is lost; an effect whose outcome is in doubt is repeated only " +
			"after the probe said that it did not happen, and exactly once if the downstream deduplicates on the effect key."
	case Once:
		return "Each key is completed at most once and nothing is lost; the handler runs at most once per key, and a run " +
			"whose outcome is in doubt is parked for a person."
	}
	return "Each key is completed at most once and nothing is lost; an effect happens exactly once if the downstream " +
		"deduplicates on the effect key, else at least once, with at most one extra per interrupted or failed run."
}

func (c *Consumer) emits() bool { return c.committer != nil && c.store.Emits }

func (c *Consumer) assumptions() []string {
	var a []string
	if c.joins {
		a = append(a, fmt.Sprintf("queue and records in one database: %s", c.store.Name))
	} else {
		a = append(a, fmt.Sprintf("queue %s, records in %s", c.queue.Name, c.store.Name))
	}
	for _, w := range slices.Concat(
		weaknesses(c.store.Durable, c.store.Caveats, "records are lost with the process: for development only", "records can be lost"),
		weaknesses(c.queue.Durable, c.queue.Caveats, "messages are lost with the process", "messages can be lost"),
	) {
		if !slices.Contains(a, w) { // queue and records of one server have the same caveats
			a = append(a, w)
		}
	}
	if n := c.queue.Unconfirmed; n > 0 {
		a = append(a, fmt.Sprintf("the queue confirms acks late or never: a crash can bring back up to %d settled messages, which are replayed", n))
	}
	if !c.store.ServerClock {
		a = append(a, "clocks only decide how often a run is taken over")
	}
	if c.cfg.PreviousKey != nil {
		a = append(a, "keys of two recipes are claimed until PreviousKey (--previous-key, --previous-consumer) is removed")
	}
	if c.cfg.AllowUnkeyed {
		a = append(a, "messages without a key run unprotected")
	}
	a = append(a, c.retentionAssumption())
	if c.cfg.LongTerm > 0 {
		a = append(a, fmt.Sprintf("those that come within %s after that become dead letters (late)", driver.DurationText(c.cfg.LongTerm)))
	}
	return a
}

// weaknesses returns the caveats of an adapter. An adapter that is not durable and has no caveats keeps nothing.
func weaknesses(durable bool, caveats []string, keepsNothing, loses string) []string {
	switch {
	case durable:
		return caveats
	case len(caveats) == 0:
		return []string{keepsNothing}
	}
	return append([]string{loses}, caveats...)
}

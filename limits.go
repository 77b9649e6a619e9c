package semel

import (
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/semel-dev/semel/internal/machine"
)

// Rate bounds how often runs are started. The zero value is no limit.
type Rate struct {
	// PerSecond is the number of runs that are started in a second, on average; it may be a fraction. Starts of probes
	// count, too; those of duplicates that are answered from their record do not.
	PerSecond float64
	// Burst is how many may start at once when there were few before. Defaults to a tenth of PerSecond, 1 at least.
	Burst int
}

// every is the time between two starts; 0 = no limit.
func (r Rate) every() time.Duration {
	if r.PerSecond <= 0 {
		return 0
	}
	return max(time.Duration(float64(time.Second)/r.PerSecond), 1)
}

func (r Rate) burst() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return max(int(r.PerSecond/10), 1)
}

func (r Rate) bad() bool {
	return r.PerSecond < 0 || math.IsNaN(r.PerSecond) || r.PerSecond > 1e6 || (r.PerSecond > 0 && r.PerSecond < 1e-4) ||
		r.Burst < 0 || r.Burst > maxInFlight || (r.Burst > 0 && r.PerSecond == 0)
}

// GroupLimit bounds the runs of each of many groups of messages, a tenant's say, so that none of them takes all slots. It
// is this consumer's own: two workers allow twice as much. Messages that have to wait stay unclaimed, keep their visibility
// and let those of other groups pass. No more than about Concurrency of them are kept in flight; further ones are returned
// for a while, which spends no attempt, but counts as a delivery where the broker counts those. The zero value is no limit.
type GroupLimit struct {
	// By names the group of a message; it must not block. "" = no limit for this one. Defaults to Message.Group.
	By func(m *Message) string
	// Concurrency is how many of a group run at once. In an open transaction (InTx with *sql.Tx or pgx.Tx, InTxBatch) it is
	// how many belong to one at once. Defaults to 0: no limit.
	Concurrency int
	// Rate bounds how often those of a group are started.
	Rate Rate
}

func (l *GroupLimit) on() bool { return l.Concurrency > 0 || l.Rate.PerSecond > 0 }

// pool names the group of an arrival. A panic of the user's function is no limit for this message.
func (r *runner) pool(m *Message) (name string) {
	by := r.cfg.PerGroup.By
	if by == nil {
		return m.Group
	}
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Logger.Error("PerGroup.By panicked: the message is not limited", logMessageID, m.ID, "panic", fmt.Sprint(v),
				"stack", string(debug.Stack()))
		}
	}()
	return by(m)
}

// Breaker keeps runs away from a downstream that is not there. While it is open nothing is fetched, and deliveries that have
// not started are returned without spending an attempt; those that run go on. When its time is over one message tries:
// its success, or a failure that is its own, closes the breaker; another outage keeps it open for twice as long. Only errors
// marked Unavailable, or that Retry or Classify call so, open it. It is paused and resumed in Events, and in Consumer.Load.
//
// A broken deployment opens it too: when no run has succeeded since Run was called, and the runs of five keys failed for one
// reason, whatever they returned: twice, or for good. Then only a success closes it: one message at a time is tried, and no other one spends an
// attempt. Reasons are compared by the plain words of their first line; what is in quotes, words with a digit or another sign
// in them, and the words of the message's key and id are left out.
type Breaker struct {
	// Failures opens it after so many outages in a row. Defaults to 5; negative = they are not counted, and without Ratio
	// there is no breaker at all.
	Failures int
	// Ratio opens it when so great a part of the runs within Window, MinRuns at least, met an outage. Defaults to 0: not.
	Ratio float64
	// Window defaults to 10 s, MinRuns to 20.
	Window  time.Duration
	MinRuns int
	// Open bounds how long it stays open, doubling, with an eighth of jitter. Defaults to 1 s to 1 min. A RetryAfter beside
	// Unavailable makes it longer, up to ten times Open.Max.
	Open Backoff
	// Classify tells the outages among the errors that nobody has marked and no rule of Retry has classed. It must not
	// block. Defaults to none.
	Classify func(err error) bool
}

// The defaults of a Breaker.
const (
	DefaultBreakerFailures = 5
	DefaultBreakerWindow   = 10 * time.Second
	DefaultBreakerMinRuns  = 20
	DefaultBreakerOpenMin  = time.Second
	DefaultBreakerOpenMax  = time.Minute
)

// brokenKeys is how many keys have to fail for one reason, before any run succeeded, for the deployment to be called broken.
const brokenKeys = 5

func (b *Breaker) resolve() {
	fill(&b.Failures, DefaultBreakerFailures)
	fill(&b.Window, DefaultBreakerWindow)
	fill(&b.MinRuns, DefaultBreakerMinRuns)
	fill(&b.Open.Min, DefaultBreakerOpenMin)
	fill(&b.Open.Max, max(DefaultBreakerOpenMax, b.Open.Min))
}

func (b *Breaker) machine() machine.BreakerConfig {
	keys := brokenKeys
	if b.Failures < 0 && b.Ratio == 0 {
		keys = 0 // there is no breaker
	}
	return machine.BreakerConfig{
		Failures: max(b.Failures, 0), Ratio: b.Ratio, Least: b.MinRuns, Window: b.Window,
		OpenMin: b.Open.Min, OpenMax: b.Open.Max, Keys: keys,
	}
}

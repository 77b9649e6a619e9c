package semel

import (
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/semel-dev/semel/internal/machine"
)

// Rate limits how often runs start. The zero value is no limit.
type Rate struct {
	// PerSecond is the average number of runs that start per second, 0.0001 to 1,000,000. Probes count as well. Duplicates of
	// completed keys do not, because they are replayed without a run.
	PerSecond float64
	// Burst is how many runs may start at once after a quiet time. Defaults to a tenth of PerSecond, at least 1.
	Burst int
}

// every returns the time between two starts, or 0 for no limit.
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

// GroupLimit limits the runs of each group of messages, for example of each tenant, so that no group takes all slots. Each
// consumer has its own limit: two workers allow twice as many runs.
//
// A message that has to wait stays unclaimed, keeps its visibility, and lets messages of other groups pass. About
// Concurrency of them at most are kept in flight. Further ones are returned with a delay, which spends no attempt but counts
// as a delivery if the broker counts deliveries. The zero value is no limit.
type GroupLimit struct {
	// By returns the group of a message, or "" for no limit. It must not block. Defaults to Message.Group.
	By func(m *Message) string
	// Concurrency is how many messages of a group run at once. With open transactions (InTx with *sql.Tx or pgx.Tx,
	// InTxBatch) it is how many are in open transactions at once. Defaults to 0: no limit.
	Concurrency int
	// Rate limits how often messages of a group start.
	Rate Rate
}

func (l *GroupLimit) on() bool { return l.Concurrency > 0 || l.Rate.PerSecond > 0 }

// pool returns the group of an arrival. If the user's function panics, the message is not limited.
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

// Breaker is a circuit breaker: it stops runs while a downstream is unavailable. Only errors that are marked Unavailable, or
// that Retry or Classify class as such, count as outages and open it.
//
// While the breaker is open, nothing is fetched, deliveries that have not started are returned without spending an attempt,
// and runs in progress continue. After the open time one message is tried. If it succeeds, or fails for another reason, the
// breaker closes. Another outage keeps it open for twice as long. Events (EventPaused, EventResumed) and Consumer.Load report
// its state.
//
// A broken deployment opens the breaker too: no run has succeeded since Run was called, and the runs of five keys failed for
// the same reason, each twice or permanently, whatever they returned. Then only a success closes it: one message at a time is
// tried, and no other message spends an attempt. Reasons are compared by the plain words of their first line. Quoted text,
// words with digits or other signs, and the words of the message's key and ID are ignored.
type Breaker struct {
	// Failures is the number of consecutive outages that open the breaker. Defaults to 5. A negative value disables the count,
	// and without Ratio the whole breaker.
	Failures int
	// Ratio opens the breaker when this fraction of the runs within Window, at least MinRuns, met an outage. It is 0 to 1.
	// Defaults to 0: off.
	Ratio float64
	// Window defaults to 10 s, MinRuns to 20.
	Window  time.Duration
	MinRuns int
	// Open bounds the open time, which doubles from Min to Max, with an eighth of jitter. Defaults to 1 s to 1 min. RetryAfter
	// together with Unavailable extends it, up to ten times Open.Max.
	Open Backoff
	// Classify reports whether an error is an outage. It is called for errors that neither a mark nor a rule of Retry has
	// classed. It must not block. Defaults to none.
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

// brokenKeys is how many keys must fail for the same reason, before any run succeeds, to count as a broken deployment.
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
		keys = 0 // no breaker
	}
	return machine.BreakerConfig{
		Failures: max(b.Failures, 0), Ratio: b.Ratio, Least: b.MinRuns, Window: b.Window,
		OpenMin: b.Open.Min, OpenMax: b.Open.Max, Keys: keys,
	}
}

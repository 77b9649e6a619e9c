package ops

import (
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// This file is how long a record must be kept (law 10). work, doctor and advise use it, on the arithmetic of package driver.

// Lateness is how late a copy of a message can be delivered, and what that is the sum of.
type Lateness struct {
	// Kept is how long the queue keeps a message, Moved how much later the service itself can deliver it again through its
	// dead-letter queue, or a person by a redrive. Producers is how long producers repeat it.
	Kept, Moved, Producers time.Duration
}

// LatenessOf is that of an open queue.
func LatenessOf(q driver.QueueFeatures, producers time.Duration) Lateness {
	return Lateness{Kept: q.Retention, Moved: max(q.Horizon-q.Retention, 0), Producers: producers}
}

// Horizon is the sum; 0 = no bound is known.
func (l Lateness) Horizon() time.Duration { return driver.LateBy(l.Kept, l.Moved, l.Producers) }

// Parts says what the horizon is the sum of.
func (l Lateness) Parts() string {
	var parts []string
	for _, p := range []struct {
		d    time.Duration
		what string
	}{
		{l.Kept, "in the queue"},
		{l.Moved, "more when it is moved to the dead letters and back"},
		{l.Producers, "of the producers' retries"},
	} {
		if p.d > 0 {
			parts = append(parts, words.Duration(p.d)+" "+p.what)
		}
	}
	return strings.Join(parts, ", ")
}

// RetentionFor is how long records are kept where nobody says otherwise: it covers the horizon.
func RetentionFor(horizon time.Duration) time.Duration { return max(semel.DefaultRetention, horizon) }

// deadLettersOutlast reports that a dead-letter queue of SQS that keeps messages for so long leaves time for one that failed
// late: on a standard queue the age of a message goes on counting when it is moved, on a FIFO queue it begins anew.
func deadLettersOutlast(kept, deadLetters time.Duration, fifo bool) bool {
	return deadLetters > kept || fifo && deadLetters == kept
}

// DeadLettersKept is how long the dead-letter queue of a queue of SQS keeps messages, which its horizon follows from; 0 = it
// has none.
func DeadLettersKept(q driver.QueueFeatures) time.Duration {
	l := LatenessOf(q, 0)
	if q.Orders && l.Moved > 0 {
		return l.Moved - l.Kept
	}
	return l.Moved
}

// LatenessAdvised is [LatenessOf] once the dead-letter queue keeps messages for as long as doctor and advise ask for; ok is false
// where it does.
func LatenessAdvised(q driver.QueueFeatures, producers time.Duration) (l Lateness, ok bool) {
	l = LatenessOf(q, producers)
	if kept := DeadLettersKept(q); !q.Redrives || kept == 0 || kept >= maxKept || deadLettersOutlast(q.Retention, kept, q.Orders) {
		return l, false
	}
	l.Moved = driver.MovedBack(q.Retention, maxKept, q.Orders)
	return l, true
}

// deadLetters is how long the dead-letter queue keeps messages: as it is set where that is enough, else as long as SQS can.
func (in Workload) deadLetters() time.Duration {
	if l := in.Live; l != nil && l.DeadLetterRetention > 0 && deadLettersOutlast(in.Retention, l.DeadLetterRetention, in.Kind == KindFIFO) {
		return l.DeadLetterRetention
	}
	return maxKept
}

// late is how late a copy can come when the dead-letter queue keeps messages for so long.
func (in Workload) late(deadLetters time.Duration) Lateness {
	l := Lateness{Kept: in.Retention, Moved: in.Redrive, Producers: in.ProducerRetries}
	if in.Kind.SQS() && (in.Live == nil || in.Live.MaxReceives > 0) {
		l.Moved = max(l.Moved, driver.MovedBack(in.Retention, deadLetters, in.Kind == KindFIFO))
	}
	return l
}

package driver

import (
	"math"
	"time"
)

// This file has the arithmetic of law 10: a record outlives every copy of its message. New, doctor and advise share it.

// MovedBack returns how much later copies of a message can arrive because the provider moves messages to a dead-letter queue
// and, when a person asks for it, back. kept is the retention of the queue, deadLetters that of the dead-letter queue. A
// message that is moved back is new to the queue and has its whole retention. restarts: its age also starts anew when it is
// moved to the dead-letter queue (SQS: FIFO queues; on standard queues the age continues). One move back is counted, because
// a message that then finds its record is acked. 0 = nothing is moved, or one of the two is unknown.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
func MovedBack(kept, deadLetters time.Duration, restarts bool) time.Duration {
	switch {
	case kept <= 0 || deadLetters <= 0:
		return 0
	case restarts:
		return sum(deadLetters, kept) // kept, then in the dead-letter queue, then kept again
	}
	return deadLetters // it is moved back at that age at most, and kept again
}

// LateBy returns how long after the first send a copy of a message can still be delivered: the broker keeps it for kept,
// redrive is how much later it may be sent again, and producers is how long producers repeat it. 0 = no bound is known.
func LateBy(kept, redrive, producers time.Duration) time.Duration {
	return sum(sum(kept, redrive), producers)
}

// sum adds durations that are not negative. It returns the maximum duration on overflow.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// LateBy returns how late a copy of a message of this queue can arrive if producers repeat messages for the given time. 0 = no
// bound is known.
func (f QueueFeatures) LateBy(producers time.Duration) time.Duration {
	return LateBy(max(f.Horizon, f.Retention), 0, producers)
}

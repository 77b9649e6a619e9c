package driver

import (
	"math"
	"time"
)

// This file is the arithmetic of law 10: a record outlives every copy of its message. New, doctor and advise share it.

// MovedBack is how much longer copies of a message can come because the provider itself moves messages to a dead-letter
// queue and, when a person asks for it, back: kept is the retention of the queue, dead letters that of the dead-letter queue.
// Moved back, a message is a new one, with the whole retention of the queue before it. restarts: its age begins anew when
// it is moved to the dead letters, too (SQS: FIFO queues; on standard queues the age goes on counting). One move back is
// counted: a message that finds its record then is acked. 0 = nothing is moved, or one of both is not known.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
func MovedBack(kept, deadLetters time.Duration, restarts bool) time.Duration {
	switch {
	case kept <= 0 || deadLetters <= 0:
		return 0
	case restarts:
		return sum(deadLetters, kept) // kept, then in the dead letters, then kept once more
	}
	return deadLetters // it is moved back while it is not older than that, and kept once more
}

// LateBy is how long after it was first sent a copy of a message can still be delivered: the broker keeps it for kept,
// redrive is how much later it may be sent again, producers how long producers repeat it. 0 = no bound is known.
func LateBy(kept, redrive, producers time.Duration) time.Duration {
	return sum(sum(kept, redrive), producers)
}

// sum adds durations that are not negative; one that would be too long is the longest there is.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// LateBy is how late a copy of a message of this queue can come when producers repeat what they sent for so long. 0 = no
// bound is known.
func (f QueueFeatures) LateBy(producers time.Duration) time.Duration {
	return LateBy(max(f.Horizon, f.Retention), 0, producers)
}

package ops

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/words"
)

// QueueKind is the kind of a queue.
type QueueKind string

// The kinds that have rules of their own; any other broker or database is KindOther.
const (
	KindSQS      QueueKind = "sqs"
	KindFIFO     QueueKind = "sqs-fifo"
	KindSQLite   QueueKind = "sqlite"
	KindPostgres QueueKind = "postgres"
	KindMySQL    QueueKind = "mysql"
	KindNATS     QueueKind = "nats"
	KindRabbitMQ QueueKind = "rabbitmq"
	KindKafka    QueueKind = "kafka"
	KindRedis    QueueKind = "redis"
	KindMemory   QueueKind = "memory"
	KindOther    QueueKind = "other"
)

// QueueKinds lists them.
func QueueKinds() []QueueKind {
	return []QueueKind{KindSQS, KindFIFO, KindSQLite, KindPostgres, KindMySQL, KindNATS, KindRabbitMQ, KindKafka, KindRedis, KindMemory, KindOther}
}

// SQS reports a queue of Amazon SQS.
func (k QueueKind) SQS() bool { return k == KindSQS || k == KindFIFO }

// What SQS allows.
const (
	maxVisible     = 12 * time.Hour
	maxKept        = 14 * 24 * time.Hour
	defaultKept    = 4 * 24 * time.Hour
	maxReceives    = 1000
	maxBatch       = 10
	maxWait        = 20 * time.Second
	dedupWindow    = 5 * time.Minute
	maxLambda      = 15 * time.Minute
	lambdaReceives = 5
)

// Workload is what is known of a queue and the work on it. Zero values are assumed as [Workload.Assumed] says.
type Workload struct {
	Kind QueueKind
	// P99 is how long nearly every run takes, MaxRuntime the hard limit of one.
	P99, MaxRuntime time.Duration
	// Retention is how long the broker keeps a message. 0 = the live queue's, or the broker's default.
	Retention time.Duration
	// Redrive is how long after its failure a message may still be sent again, where that is longer than the queue's own
	// dead-letter queue keeps it; ProducerRetries how long a producer goes on sending the same thing.
	Redrive, ProducerRetries time.Duration
	// Attempts is after how many failed runs a message is a dead letter.
	Attempts int
	// Batch is what one receive asks for, Concurrency how many handlers run at once.
	Batch, Concurrency int
	// NoHeartbeat: nothing extends what is hidden while a run goes on.
	NoHeartbeat bool
	// LambdaTimeout and LambdaWindow are the time limit of a function that the queue calls, and its batching window.
	LambdaTimeout, LambdaWindow time.Duration
	// Live is how the queue is set now; nil = nobody asked it.
	Live *LiveQueue
}

// LiveQueue is how a queue is set.
type LiveQueue struct {
	Visibility, Retention, Wait time.Duration
	// MaxReceives is the redrive policy's limit; 0 = there is no policy.
	MaxReceives int
	// DeadLetterRetention is that of the queue that the redrive policy names; 0 = it is unknown.
	DeadLetterRetention time.Duration
	FIFO                bool
	// ContentDedup: the deduplication id of a message without one is the hash of its body.
	ContentDedup bool
}

// WorkloadError names what does not fit.
type WorkloadError struct{ Field, Problem, Hint string }

func (e *WorkloadError) Error() string { return e.Field + " " + e.Problem }

// Assumed is the input with what nobody said.
func (in Workload) Assumed() Workload {
	in.Kind = cmp.Or(in.Kind, KindSQS)
	if in.Live != nil && in.Kind.SQS() {
		in.Kind = KindSQS
		if in.Live.FIFO {
			in.Kind = KindFIFO
		}
	}
	if in.MaxRuntime == 0 {
		in.MaxRuntime = max(15*time.Minute, in.P99)
		if in.LambdaTimeout > 0 {
			in.MaxRuntime = in.LambdaTimeout
		}
	}
	if in.Retention == 0 && in.Live != nil {
		in.Retention = in.Live.Retention
	}
	if in.Retention == 0 && in.Kind.SQS() {
		in.Retention = defaultKept
	}
	in.Attempts, in.Batch = cmp.Or(in.Attempts, semel.DefaultMaxAttempts), cmp.Or(in.Batch, semel.DefaultBatch)
	in.Concurrency = cmp.Or(in.Concurrency, semel.DefaultConcurrency)
	return in
}

// Check refuses what cannot be.
func (in Workload) Check() error {
	in = in.Assumed()
	switch {
	case !slices.Contains(QueueKinds(), in.Kind):
		return &WorkloadError{"queue", fmt.Sprintf("%q is no kind of queue", in.Kind), fmt.Sprintf("one of %v, or the URL of a queue", QueueKinds())}
	case min(in.P99, in.MaxRuntime, in.Retention, in.Redrive, in.ProducerRetries, in.LambdaTimeout, in.LambdaWindow) < 0:
		return &WorkloadError{"p99", "or another duration is negative", "use durations of 0 and more"}
	case in.Attempts < 1 || in.Batch < 1 || in.Concurrency < 1:
		return &WorkloadError{"max-attempts", "or batch or concurrency is less than 1", "use 1 and more"}
	case in.P99 > in.MaxRuntime:
		return &WorkloadError{
			"p99", fmt.Sprintf("%s is longer than the longest run (%s)", words.About(in.P99), words.About(in.MaxRuntime)), "--max-runtime " + words.About(2*in.P99),
		}
	case in.Kind.SQS() && in.Retention > maxKept:
		return &WorkloadError{"retention", fmt.Sprintf("%s is more than SQS keeps a message", words.About(in.Retention)), "14d at most"}
	case in.LambdaTimeout > maxLambda:
		return &WorkloadError{"lambda-timeout", fmt.Sprintf("%s is more than a function may have", words.About(in.LambdaTimeout)), "15m at most"}
	case in.LambdaTimeout > 0 && !in.Kind.SQS():
		return &WorkloadError{"lambda-timeout", fmt.Sprintf("is about queues of SQS, and this one is %s", in.Kind), "--queue sqs"}
	case in.LambdaTimeout == 0 && in.LambdaWindow > 0:
		return &WorkloadError{"lambda-window", "needs the function's time limit", "--lambda-timeout 30s"}
	}
	return nil
}

// Settings are the numbers that [Workload.Settings] computes.
type Settings struct {
	Kind       QueueKind
	Visibility time.Duration
	Lease      time.Duration
	Heartbeat  time.Duration // 0: nothing extends
	MaxRuntime time.Duration
	// Steps: a run may last longer than the queue can hide a message, so it has to be cut in durable steps.
	Steps bool
	// MaxReceives is the redrive policy's limit, 0 where the queue has no such thing.
	MaxReceives int
	// Retention is of records, Horizon how late a duplicate may come.
	Retention, Horizon time.Duration
	// DeadLetterRetention is of the dead-letter queue; 0 = dead letters are kept until somebody deals with them.
	DeadLetterRetention time.Duration
	Wait                time.Duration
	Batch               int
	Grace               time.Duration
}

const day = 24 * time.Hour

// Settings computes the numbers of a workload that [Workload.Check] has not refused.
func (in Workload) Settings() Settings {
	in = in.Assumed()
	late := in.late(in.deadLetters())
	s := Settings{Kind: in.Kind, MaxRuntime: in.MaxRuntime, Batch: in.Batch, Grace: max(25*time.Second, up(in.P99))}
	s.leases(in)
	if in.Kind.SQS() {
		s.Steps = s.Steps || s.Heartbeat > 0 && s.MaxRuntime+s.Visibility > maxVisible
		s.MaxReceives = min(Receives(in.Attempts, s.MaxRuntime, s.Lease), maxReceives)
		if in.LambdaTimeout > 0 {
			s.MaxReceives = max(s.MaxReceives, lambdaReceives)
		}
		s.DeadLetterRetention, s.Wait = in.deadLetters(), maxWait
		s.Batch = min(in.Batch, maxBatch)
	}
	s.Batch = min(s.Batch, begun(in))
	s.Horizon = late.Horizon()
	s.Retention = RetentionFor(s.Horizon)
	return s
}

// begun is how many messages a worker can begin within a second, or at once where runs are longer or nothing extends what waits.
func begun(in Workload) int {
	rounds := 1
	switch {
	case in.NoHeartbeat:
	case in.P99 == 0:
		return in.Batch
	case in.P99 < time.Second:
		rounds = int(time.Second / in.P99)
	}
	if rounds > in.Batch {
		return in.Batch
	}
	return in.Concurrency * rounds
}

// leases picks visibility, lease and heartbeat. The heartbeat is never more than a third of the lease: two may be lost.
func (s *Settings) leases(in Workload) {
	switch {
	case in.LambdaTimeout > 0:
		s.Visibility = up(6*in.LambdaTimeout + in.LambdaWindow)
		s.MaxRuntime = min(in.MaxRuntime, in.LambdaTimeout)
		// A frozen function extends nothing: its lease ends with its time limit, not later.
		s.Lease = in.LambdaTimeout
		s.Heartbeat = s.Lease / 3
		return
	case in.NoHeartbeat:
		rounds := (min(in.Batch, maxBatch) + in.Concurrency - 1) / in.Concurrency
		s.Visibility = up(time.Duration(rounds) * in.MaxRuntime / 9 * 10)
		s.Visibility = max(s.Visibility, 30*time.Second)
	default:
		s.Visibility = up(min(max(3*in.P99, 30*time.Second), time.Minute))
		if in.Kind.SQS() {
			s.Visibility = fits(s.Visibility, in.Attempts, in.MaxRuntime)
		}
	}
	if in.Kind.SQS() && s.Visibility > maxVisible {
		s.Visibility, s.Steps = maxVisible, true
	}
	s.Lease = s.Visibility / 10 * 9
	if !in.NoHeartbeat {
		s.Heartbeat = s.Lease / 3
	}
}

// fits raises a visibility until the number of receives that runs of this length need is one that a redrive policy takes.
func fits(v time.Duration, attempts int, longest time.Duration) time.Duration {
	for Receives(attempts, longest, v/10*9) > maxReceives && v < maxVisible {
		v = min(2*v, maxVisible)
	}
	return v
}

// Receives is how many receives of a message a redrive policy must allow (law 6): duplicates of a running key that are put off
// raise the count of the broker, too.
func Receives(attempts int, longest, lease time.Duration) int {
	n := float64(attempts) * (1 + float64(longest)/float64(lease))
	return int(math.Ceil(min(n, 1e9)))
}

// up rounds up to whole seconds, which SQS takes.
func up(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

package driver

import (
	"context"
	"time"
)

// Outcome answers one item of a batched write. It has three values and a half, never two: a bool cannot say "nobody
// knows".
type Outcome uint8

// The outcomes of a write.
const (
	// Unknown: the write may or may not have been applied. Repeat the same write, or give up without a further one.
	Unknown Outcome = iota
	// Applied: it is durable; a repetition of an applied write answers Applied too.
	Applied
	// Lost: somebody else owns the item now; the write changed nothing. Stop working on it.
	Lost
	// Settled: an extension found the record already completed by this very attempt: nothing to extend, nothing lost.
	Settled
	// Recovered: a completion was applied to a parked record (late truth wins): its uncertain dead letter has to be closed.
	Recovered
)

func (o Outcome) String() string {
	return [...]string{"unknown", "applied", "lost", "settled", "recovered"}[o]
}

// Queue is what every broker adapter offers. All methods may be called concurrently. Who opens a queue closes it: the
// engine never does.
type Queue interface {
	// Receive hands out up to max deliveries. It blocks until there is at least one or ctx is done; with ctx done it
	// may still return some, and what it returned is the caller's to settle. No deliveries and a nil error are a legal
	// answer after a wait (long polling); the engine calls again.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Settle ends deliveries. Outcomes are positional; an error means that every item without an outcome is Unknown.
	// Settling with a receipt that was handed out again is Lost, where the broker can tell. The engine repeats Unknown
	// items.
	Settle(ctx context.Context, s ...Settlement) ([]Outcome, error)
	// Extend keeps deliveries invisible to others for the given time from now. It is best effort: the store's lease is
	// the authority.
	Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]Outcome, error)
	// Features is asked by New, and may be asked again at any time. It does no I/O: what only the server knows is found
	// out when the queue is opened.
	Features() QueueFeatures
}

// QueueFeatures tell the engine, the conformance suite and the guarantee line what a queue can do.
type QueueFeatures struct {
	// Name is the queue's name, for logs and as the default consumer name; Kind is the adapter's ("sqlite", "sqs").
	Name, Kind string
	// MaxBatch is the most deliveries of one Receive and items of one Settle or Extend. 0 = no limit.
	MaxBatch int
	// Visible is how long every delivery and every extension lasts, where the broker fixes it (JetStream's AckWait): Extend
	// takes no other duration then. Config.Visibility has to be the same, and defaults to it. 0 = Extend takes any duration.
	Visible time.Duration
	// MaxVisible is the longest time a delivery can be kept in all (SQS: 12 h). 0 = no limit.
	MaxVisible time.Duration
	// Retention is how long the broker keeps an unsettled message. 0 = forever.
	Retention time.Duration
	// Horizon is how long after it was first sent a copy of a message can still be delivered, with what the provider itself
	// moves to a dead-letter queue and back (see [MovedBack]). 0 = no bound is known but Retention.
	Horizon time.Duration
	// Durable: an accepted message survives the death of every process.
	Durable bool
	// Caveats are sentences about this very server or configuration that weaken the promise. Each is printed among the
	// promise's assumptions. One that says that accepted messages can be lost comes with Durable false: the adapter sets
	// both.
	Caveats []string
	// Unconfirmed is how many settled messages a crash of the process can bring back at most, because the broker does not
	// confirm an ack (AMQP), or not before those of all earlier messages (a log). Applied says of an ack then that it was
	// handed over. 0 = acks are confirmed.
	Unconfirmed int
	// Extends: Extend works. Delays: Settlement.After is honoured; the engine asks for delays of queues without, too, and
	// such a queue delivers the message at once. DelaysSend: Message.Delay is honoured; Send refuses a delay without
	// (ErrUnsupported). Counts: Delivery.Count is kept; without it the engine claims every message durably before it runs,
	// in open transactions (InTx) too. Orders: groups are delivered in order, a later message not before the
	// earlier one is settled. DeadLetters: Dead keeps the dead letter, and the queue is a DeadLetterQueue or a DeadLetterKeeper.
	Extends, Delays, DelaysSend, Counts, Orders, DeadLetters bool
	// Runs belongs to Orders: one Receive may hand out several messages of a group, one behind the other (SQS's FIFO
	// queues). One that is returned may come again at once, to anybody, while those behind it are still out: so who
	// gives one back starts none of those, and gives them back too.
	Runs bool
	// Redrives: the broker itself moves a message away after a number of deliveries (SQS's redrive policy, RabbitMQ's
	// delivery limit). The engine then defers duplicates of a key in progress for longer, up to its MaxRuntime (law 6).
	Redrives bool
}

// Sender is a queue that messages can be sent to. Send returns nil only when all messages are accepted; after an error
// any of them may have been. A message with an ID that the queue still knows may be accepted twice: deduplication is
// the consumer's work.
type Sender interface {
	Send(ctx context.Context, m ...Message) error
}

// QueueStats counts what a queue holds.
type QueueStats struct {
	Visible, InFlight, Delayed, DeadLetters int64
	// Oldest is the age of the oldest message; 0 when there is none, or the broker does not tell.
	Oldest time.Duration
	// Approximate: the numbers lag behind, and one that says 0 may be wrong for a while (SQS), or messages that were returned
	// count as in flight until they are delivered again (JetStream).
	Approximate bool
}

// Empty reports that nothing is left to deliver, now or later. Of numbers that are not Approximate it may be late, and never
// early: after Send returned it is false until the messages are settled.
func (s QueueStats) Empty() bool { return s.Visible+s.InFlight+s.Delayed == 0 }

// QueueInspector is an optional interface of queues.
type QueueInspector interface {
	Stats(ctx context.Context) (QueueStats, error)
	// Peek shows up to max messages without receiving them, oldest first. A broker that shows a message only to who
	// receives it (SQS) answers ErrUnsupported.
	Peek(ctx context.Context, max int) ([]Delivery, error)
}

// Purger is an optional interface of queues.
type Purger interface {
	// Purge removes every message that is not a dead letter, and returns how many.
	Purge(ctx context.Context) (int64, error)
}

// DeadLetterQueue is an optional interface of queues that keep dead letters (QueueFeatures.DeadLetters).
type DeadLetterQueue interface {
	// DeadLetters lists up to limit dead letters (0 = all), oldest first.
	DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error)
	// DeadLetter returns one; ok is false when there is none.
	DeadLetter(ctx context.Context, id string) (l DeadLetter, ok bool, err error)
	// PutDeadLetter publishes a dead letter that no delivery leads to; publishing an id twice is one dead letter.
	PutDeadLetter(ctx context.Context, l DeadLetter) error
	// DeleteDeadLetter removes a dead letter; one that is not there is no error.
	DeleteDeadLetter(ctx context.Context, id string) error
}

// DeadLetterKeeper is an optional interface of queues whose dead letters are kept somewhere else.
type DeadLetterKeeper interface {
	// DeadLetterQueue returns where the dead letters are; nil when there are none.
	DeadLetterQueue() DeadLetterQueue
}

// DeadLetterStore is an optional interface of stores that can also keep the dead letters of queues elsewhere: see package
// deadletter.
type DeadLetterStore interface {
	// DeadLetters returns the place for the dead letters of a queue of that name. It does no I/O.
	DeadLetterQueue(queue string) DeadLetterQueue
}

// DeadLettersOf finds the dead letters of a queue: its own, or those of its [DeadLetterKeeper].
func DeadLettersOf(q Queue) (box DeadLetterQueue, ok bool) {
	if box, ok = As[DeadLetterQueue](q); ok {
		return box, true
	}
	if k, ok := As[DeadLetterKeeper](q); ok {
		box = k.DeadLetterQueue()
	}
	return box, box != nil
}

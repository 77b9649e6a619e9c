package driver

import (
	"context"
	"time"
)

// Outcome is the result for one item of a batched write. It is not a bool, because the outcome of a write can be unknown.
type Outcome uint8

// The outcomes of a write.
const (
	// Unknown: the write may or may not have been applied. Repeat the same write, or give up without a further write.
	Unknown Outcome = iota
	// Applied: the write is durable. Repeating an applied write returns Applied too.
	Applied
	// Lost: another attempt or consumer owns the item now, and the write changed nothing. Stop working on the item.
	Lost
	// Settled: an extension found the record already completed by the same attempt. There is nothing to extend.
	Settled
	// Recovered: a late completion was applied to a parked record. Its uncertain dead letter must be closed.
	Recovered
)

func (o Outcome) String() string {
	return [...]string{"unknown", "applied", "lost", "settled", "recovered"}[o]
}

// Queue is the interface of every broker adapter. All methods may be called concurrently. The program that opens a queue
// closes it. The engine does not.
type Queue interface {
	// Receive returns up to max deliveries. It blocks until there is at least one or ctx is done. It may return deliveries
	// even if ctx is done, and the caller must settle all that it returns. After a wait (long polling) it may also return no
	// deliveries and a nil error. The engine then calls it again.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Settle ends deliveries. Outcomes are positional. An error means that every item without an outcome is Unknown, and the
	// engine repeats it. Settling with the receipt of a message that was redelivered is Lost, if the broker can detect it.
	Settle(ctx context.Context, s ...Settlement) ([]Outcome, error)
	// Extend keeps deliveries invisible to others for the given time from now. It is best effort: the store's lease is
	// the authority.
	Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]Outcome, error)
	// Features is called by New, and may be called again at any time. It does no I/O: facts that only the server knows are
	// read when the queue is opened.
	Features() QueueFeatures
}

// QueueFeatures describes what a queue can do, for the engine, the conformance suite and the guarantee line.
type QueueFeatures struct {
	// Name is the queue's name, for logs and as the default consumer name. Kind names the adapter ("sqlite", "sqs").
	Name, Kind string
	// MaxBatch is the maximum of deliveries of one Receive and of items of one Settle or Extend. 0 = no limit.
	MaxBatch int
	// Visible is how long every delivery and every extension lasts, if the broker fixes it (JetStream's AckWait). Extend then
	// accepts no other duration, and Config.Visibility must be the same, which is its default. 0 = Extend accepts any duration.
	Visible time.Duration
	// MaxVisible is the longest total time a delivery can be kept (SQS: 12 h). 0 = no limit.
	MaxVisible time.Duration
	// Retention is how long the broker keeps an unsettled message. 0 = forever.
	Retention time.Duration
	// Horizon is how long after the first send a copy of a message can still be delivered, including moves by the provider to
	// a dead-letter queue and back (see [MovedBack]). 0 = no bound but Retention is known.
	Horizon time.Duration
	// Durable: an accepted message survives the end of every process.
	Durable bool
	// Caveats are sentences about this server or configuration that weaken the guarantee. Each is printed among the
	// assumptions of the guarantee. If accepted messages can be lost, the adapter must also set Durable to false.
	Caveats []string
	// Unconfirmed is how many settled messages can be redelivered at most after a crash of the process, because the broker
	// does not confirm acks (AMQP), or only together with those of all earlier messages (a log). The outcome Applied of an ack
	// then means that it was sent. 0 = acks are confirmed.
	Unconfirmed int
	// Extends: Extend works.
	//
	// Delays: Settlement.After is honoured. The engine sets it in any case, and a queue without Delays redelivers at once.
	//
	// DelaysSend: Message.Delay is honoured. Without it, Send refuses a delay (ErrUnsupported).
	//
	// Counts: Delivery.Count is set. Without it, the engine claims every message durably before it runs, also in open
	// transactions (InTx).
	//
	// Orders: groups are delivered in order. A later message is not delivered before the earlier one is settled.
	//
	// DeadLetters: Dead keeps the dead letter, and the queue is a DeadLetterQueue or a DeadLetterKeeper.
	Extends, Delays, DelaysSend, Counts, Orders, DeadLetters bool
	// Runs belongs to Orders: one Receive may return several consecutive messages of a group (SQS's FIFO queues). A message
	// that is returned may be redelivered at once, to any consumer, while the messages behind it are still in flight. A
	// consumer that returns one must therefore not start those behind it, and must return them too.
	Runs bool
	// Redrives: the broker itself moves a message away after a number of deliveries (SQS's redrive policy, RabbitMQ's
	// delivery limit). The engine then defers duplicates of a key in progress for longer, up to its MaxRuntime (law 6).
	Redrives bool
}

// Sender is a queue that messages can be sent to. Send returns nil only if all messages are accepted. After an error any of
// them may have been. A message with an ID that the queue still knows may be accepted twice: deduplication is the consumer's
// job.
type Sender interface {
	Send(ctx context.Context, m ...Message) error
}

// QueueStats counts what a queue holds.
type QueueStats struct {
	Visible     int64 `json:"visible"`
	InFlight    int64 `json:"in_flight"`
	Delayed     int64 `json:"delayed"`
	DeadLetters int64 `json:"-"`
	// Oldest is the age of the oldest message. It is 0 if there is none, or if the broker does not report it.
	Oldest time.Duration `json:"oldest_ns"`
	// Approximate: the numbers lag behind, and a 0 may be wrong for a while (SQS), or returned messages count as in flight
	// until they are redelivered (JetStream).
	Approximate bool `json:"approximate,omitempty"`
	// AtLeast: counting stopped at a limit ([QueueCounter]), so there can be more.
	AtLeast bool `json:"at_least,omitempty"`
}

// Empty reports whether nothing is left to deliver, now or later. If the numbers are not Approximate, it may become true late
// but not early: after Send has returned it is false until the messages are settled.
func (s QueueStats) Empty() bool { return s.Visible+s.InFlight+s.Delayed == 0 }

// QueueInspector is an optional interface of queues.
type QueueInspector interface {
	// Stats returns the counts of the queue.
	Stats(ctx context.Context) (QueueStats, error)
	// Peek returns up to max messages without receiving them, oldest first. It returns ErrUnsupported if the broker shows
	// messages only to their receivers (SQS).
	Peek(ctx context.Context, max int) ([]Delivery, error)
}

// QueueCounter is an optional interface of queues that can hold millions of messages.
type QueueCounter interface {
	// CountMessages is [QueueInspector] Stats for people: it stops when it has counted most messages or a few more, and counts no
	// dead letters. Oldest is then the age of the oldest one that it counted.
	CountMessages(ctx context.Context, most int) (QueueStats, error)
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
	// DeadLetter returns a dead letter. ok is false if there is none with that ID.
	DeadLetter(ctx context.Context, id string) (l DeadLetter, ok bool, err error)
	// PutDeadLetter publishes a dead letter that belongs to no delivery. Publishing an ID twice makes one dead letter.
	PutDeadLetter(ctx context.Context, l DeadLetter) error
	// DeleteDeadLetter removes a dead letter. It returns nil if there is none with that ID.
	DeleteDeadLetter(ctx context.Context, id string) error
}

// DeadLetterKeeper is an optional interface of queues whose dead letters are kept somewhere else.
type DeadLetterKeeper interface {
	// DeadLetterQueue returns the place of the dead letters, or nil if there is none.
	DeadLetterQueue() DeadLetterQueue
}

// DeadLetterStore is an optional interface of stores that can keep the dead letters of other queues: see package deadletter.
type DeadLetterStore interface {
	// DeadLetterQueue returns the place for the dead letters of the queue of that name, or nil if the store has none. It does
	// no I/O.
	DeadLetterQueue(queue string) DeadLetterQueue
}

// DeadLettersOf finds the dead letters of a queue: its own, or those of its [DeadLetterKeeper].
func DeadLettersOf(q Queue) (d DeadLetterQueue, ok bool) {
	if d, ok = As[DeadLetterQueue](q); ok {
		return d, true
	}
	if k, ok := As[DeadLetterKeeper](q); ok {
		d = k.DeadLetterQueue()
	}
	return d, d != nil
}

package semellambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// The defaults of [Options].
const (
	DefaultFloor  = 250 * time.Millisecond
	DefaultMargin = time.Second
)

// beyond is how far a lease reaches beyond the deadline of its invocation: what the engine believes of it ends before.
const beyond = time.Second

// Options of [NewSQS]. Letters or RedrivePolicy is needed; the zero value of everything else is the documented default.
type Options struct {
	// DeadLetters keeps what ended for good: an sqs.DeadLetterQueue, or any queue of semel that keeps dead letters.
	DeadLetters driver.DeadLetterQueue
	// RedrivePolicy says that the queue has a redrive policy, and that what ended for good is left to it. Dead letters go first.
	RedrivePolicy bool
	// Floor is the least time that must be left before the margin for anything to be begun. Defaults to 250 ms.
	Floor time.Duration
	// Margin is how long before the deadline handlers are cancelled: what has to be written, and the answer, needs it.
	// Defaults to 1 s, but to a tenth of an invocation that has less than 10 s.
	Margin time.Duration
	// Retention is how long the queue keeps messages (MessageRetentionPeriod): records that are kept for less are refused.
	// Defaults to 0: not compared.
	Retention time.Duration
	// Unwrap takes messages out of the envelopes of SNS, EventBridge and structured CloudEvents, see sqs.Options. The key
	// function event needs none of it. Defaults to false.
	Unwrap bool
	// Exit ends the process when handlers ignored their cancellation. Defaults to os.Exit.
	Exit func(code int)
}

// SQS handles the batches that Lambda takes out of an SQS queue.
type SQS struct {
	cfg  semel.Config
	o    Options
	need need
}

// NewSQS makes a handler of batches. The configuration is that of any consumer, without a queue: Consumer defaults to the
// name of the queue that the records come from, Backoff to one second (the queue's visibility decides). Errors are
// *semel.ConfigError, or those of semel.New. It does no I/O.
func NewSQS(cfg semel.Config, o Options) (*SQS, error) {
	switch {
	case cfg.Queue != nil:
		return nil, &semel.ConfigError{Field: "Queue", Problem: "is set, and Lambda hands the messages in", Hint: "leave it nil"}
	case cfg.Limit != 0 || !cfg.Until.IsZero():
		return nil, &semel.ConfigError{Field: "Limit and Until", Problem: "are those of an invocation", Hint: "leave them zero"}
	case o.DeadLetters == nil && !o.RedrivePolicy:
		return nil, &semel.ConfigError{
			Field: "Options.DeadLetters", Problem: "is nil: what fails for good would come back until the queue forgets it",
			Hint: "give a place for dead letters, or say with RedrivePolicy that the queue has one for what is received too often",
		}
	case o.Floor < 0 || o.Margin < 0 || o.Retention < 0:
		return nil, &semel.ConfigError{Field: "Options", Problem: "has a negative duration", Hint: "use 0 for the default"}
	}
	if o.Floor == 0 {
		o.Floor = DefaultFloor
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Backoff == (semel.Backoff{}) {
		cfg.Backoff = semel.Backoff{Min: time.Second, Max: time.Second}
	}
	h := &SQS{cfg: cfg, o: o}
	probe := cfg
	probe.Queue = &batch{name: "queue", deadLetters: o.DeadLetters, retention: o.Retention}
	if _, err := semel.New(probe); err != nil {
		return nil, err
	}
	return h, nil
}

// Handle is what lambda.Start takes. See the package's documentation for what it answers and when.
func (h *SQS) Handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	if len(ev.Records) == 0 {
		return events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}, nil
	}
	b, err := newBatch(ev.Records, &h.o, h.cfg.Logger)
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	w := h.window(ctx)
	runCtx, stop := context.WithDeadline(ctx, w.drain)
	defer stop()
	b.stop, b.gate = stop, func() bool { return time.Now().Before(w.cancel.Add(-h.needed(w))) }
	c, err := semel.New(h.config(b, w))
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(runCtx) }()
	last := time.NewTimer(time.Until(w.last))
	defer last.Stop()
	select {
	case err = <-done:
	case <-last.C:
		if n := c.Load().Running; n > 0 {
			err = &semel.HandlerStuckError{N: n}
		} // else only writes are unanswered: the records tell the next delivery
	}
	if stuck := (*semel.HandlerStuckError)(nil); errors.As(err, &stuck) {
		h.cfg.Logger.Error("handlers ignored their cancellation: the process ends, so that they do not run on in a later invocation",
			"handlers", stuck.N)
		h.o.Exit(1)
	}
	if err != nil {
		return events.SQSEventResponse{}, fmt.Errorf("semellambda: %w", err)
	}
	answer := b.answer()
	if len(answer.BatchItemFailures) > 0 && c.Summary().Executed == 0 {
		h.need.forget()
	}
	return answer, nil
}

// window are the moments of an invocation: nothing is begun from drain on, handlers are cancelled at cancel, the answer is
// given by last, and the process is frozen at end.
type window struct{ begin, drain, cancel, last, end time.Time }

// most is how long an invocation of Lambda lasts, for a context without a deadline.
const most = 15 * time.Minute

func (h *SQS) window(ctx context.Context) window {
	w := window{begin: time.Now()}
	end, ok := ctx.Deadline()
	if !ok {
		end = w.begin.Add(most)
	}
	w.end = end
	margin := h.o.Margin
	if margin == 0 {
		margin = min(DefaultMargin, end.Sub(w.begin)/10)
	}
	w.cancel = end.Add(-margin)
	w.last = end.Add(-margin / 4)
	w.drain = w.cancel.Add(-h.needed(w))
	return w
}

// needed is how much time must be left before the handlers are cancelled, for anything to be begun.
func (h *SQS) needed(w window) time.Duration {
	return max(h.o.Floor, min(h.need.p99(), w.cancel.Sub(w.begin)/10*9))
}

// config is the consumer of one invocation.
func (h *SQS) config(b *batch, w window) semel.Config {
	cfg := h.cfg
	left := max(time.Until(w.end), time.Second)
	cfg.Queue, cfg.Limit, cfg.Until = b, b.comes(), w.end.Add(beyond)
	cfg.Visibility = (left + beyond) / 9 * 10 // of which the lease is 0.9
	cfg.MaxRuntime = left
	cfg.Grace = max(w.cancel.Sub(w.drain), time.Millisecond)
	whole := max(w.cancel.Sub(w.begin)/10*9, time.Millisecond) // a run that had that much and did not end has failed
	if cfg.Timeout == 0 || cfg.Timeout > whole {
		cfg.Timeout = whole
	}
	began := map[string]time.Time{}
	cfg.Events = semel.Tee(cfg.Events, semel.Events{
		Attempt: func(e semel.Event) {
			if e.Kind == semel.EventStarted {
				began[e.MessageID] = e.At
			}
		},
		Delivery: func(e semel.Event) {
			if at, ok := began[e.MessageID]; ok && e.Kind == semel.EventDecided {
				h.need.observe(e.At.Sub(at))
				delete(began, e.MessageID)
			}
		},
	})
	return cfg
}

package semellambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
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

// beyond is how long after the deadline of its invocation a lease ends at most. The engine stops relying on it before.
const beyond = time.Second

// Options of [NewSQS]. DeadLetters or RedrivePolicy is required; the zero value of all else is the documented default.
type Options struct {
	// DeadLetters keeps messages that failed for good: an sqs.DeadLetterQueue, or any queue of semel with dead letters.
	DeadLetters driver.DeadLetterQueue
	// RedrivePolicy confirms that the queue has a redrive policy, which moves messages that failed for good. DeadLetters
	// takes precedence.
	RedrivePolicy bool
	// Floor is the least time that must be left before the margin for a run to begin. Defaults to 250 ms.
	Floor time.Duration
	// Margin is how long before the deadline handlers are cancelled: the last writes and the response need this time.
	// Defaults to 1 s, or to a tenth of an invocation that has less than 10 s.
	Margin time.Duration
	// Retention is how long the queue keeps messages (MessageRetentionPeriod). NewSQS refuses a shorter retention of
	// records. Defaults to 0: not compared.
	Retention time.Duration
	// Unwrap takes messages out of the envelopes of SNS, EventBridge and structured CloudEvents, see sqs.Options. The key
	// function event does not need it. Defaults to false.
	Unwrap bool
	// Exit ends the process when handlers ignored their cancellation. Defaults to os.Exit.
	Exit func(code int)
}

// SQS handles the batches that Lambda receives from an SQS queue.
type SQS struct {
	cfg  semel.Config
	o    Options
	need need
}

// NewSQS makes a handler of batches. The configuration is that of any consumer, without a queue. Consumer defaults to the
// name of the records' queue, Backoff to one second (the queue's visibility decides). Errors are *semel.ConfigError, or
// those of semel.New. It does no I/O.
func NewSQS(cfg semel.Config, o Options) (*SQS, error) {
	switch {
	case cfg.Queue != nil:
		return nil, &semel.ConfigError{Field: "Queue", Problem: "is set, but Lambda delivers the messages", Hint: "leave it nil"}
	case cfg.Limit != 0 || !cfg.Until.IsZero():
		return nil, &semel.ConfigError{Field: "Limit and Until", Problem: "are those of an invocation", Hint: "leave them zero"}
	case o.DeadLetters == nil && !o.RedrivePolicy:
		return nil, &semel.ConfigError{
			Field: "Options.DeadLetters", Problem: "is nil: a message that fails for good would be redelivered until its retention ends",
			Hint: "set a dead-letter queue, or set RedrivePolicy if the queue has a redrive policy",
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

// Handle handles an invocation; give it to lambda.Start. See the package's documentation for what it returns, and when.
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
		} // else only writes have no response yet: the next delivery reads the records
	}
	if stuck := (*semel.HandlerStuckError)(nil); errors.As(err, &stuck) {
		h.cfg.Logger.Error("handlers ignored their cancellation: the process ends, so that they do not run on in a later invocation",
			"handlers", stuck.N)
		h.o.Exit(1)
	}
	if err != nil {
		return events.SQSEventResponse{}, fmt.Errorf("semellambda: %w", err)
	}
	response := b.response()
	if len(response.BatchItemFailures) > 0 && c.Summary().Executed == 0 {
		h.need.forget()
	}
	return response, nil
}

// window are the times of an invocation: nothing is begun after drain, handlers are cancelled at cancel, Handle returns by
// last, and the process is frozen at end.
type window struct{ begin, drain, cancel, last, end time.Time }

// most is the longest invocation of Lambda, for a context without a deadline.
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

// needed returns how much time must be left before the handlers are cancelled for a run to begin.
func (h *SQS) needed(w window) time.Duration {
	return max(h.o.Floor, min(h.need.p99(), w.cancel.Sub(w.begin)/10*9))
}

// config returns the configuration of an invocation's consumer.
func (h *SQS) config(b *batch, w window) semel.Config {
	cfg := h.cfg
	left := max(time.Until(w.end), time.Second)
	cfg.Queue, cfg.Limit, cfg.Until = b, b.comes(), w.end.Add(beyond)
	cfg.Visibility = (left + beyond) / 9 * 10 // of which the lease is 0.9
	cfg.MaxRuntime = left
	cfg.Grace = max(w.cancel.Sub(w.drain), time.Millisecond)
	whole := max(w.cancel.Sub(w.begin)/10*9, time.Millisecond) // a run that had that much time and did not end has failed
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

// need learns how much time a message needs, run and commit, from the last messages of this process. It may be used by
// several goroutines at once.
type need struct {
	mu    sync.Mutex
	last  [512]time.Duration
	count int
}

func (n *need) observe(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[n.count%len(n.last)] = d
	n.count++
}

// forget starts again: with the learnt times no run could begin.
func (n *need) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count = 0
}

// p99 returns the 99th percentile of the observed times; 0 = there are none.
func (n *need) p99() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := slices.Clone(n.last[:min(n.count, len(n.last))])
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(99*len(known)+99)/100-1]
}

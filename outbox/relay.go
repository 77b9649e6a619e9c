package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

// HeaderID is the header that carries the id of every published message: brokers give messages ids of their own. Keys
// are taken from it by default (key.ByID), unless the message has an idempotency-key.
const HeaderID = "message-id"

// Config of a [Relay]. From and one of To and Route are required.
type Config struct {
	// From is the outbox. It has to keep messages of a group in order, to delay, to extend and to keep dead letters. Where one
	// Receive hands out several of a group (driver.QueueFeatures.Runs) they are published one after the other.
	From driver.Queue
	// To takes all messages.
	To driver.Sender
	// Route returns the sender of a message, instead of To, and may change the message. Its id stays the same. Messages of one
	// sender (they are compared) go together. An error counts as the message's failure.
	Route func(m *driver.Message) (driver.Sender, error)
	// Batch is how many messages are published together at most. Defaults to 100.
	Batch int
	// MaxAttempts is how often a message is refused before it becomes a dead letter of the outbox. Only what is its own fault
	// counts, and only what this relay saw: see [Relay.Run]. Defaults to 10.
	MaxAttempts int
	// RetryMin and RetryMax bound the pauses after a refusal, which double. They default to 1 s and 1 min.
	RetryMin, RetryMax time.Duration
	// SendTimeout bounds one publication. Defaults to 30 s.
	SendTimeout time.Duration
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Counts has what a relay did since it was made.
type Counts struct {
	// Published messages were accepted and left the outbox. Again: accepted, but another relay has them now and publishes
	// them once more. Refused counts refusals, Parked the dead letters that were written.
	Published, Again, Refused, Parked int64
}

// Relay publishes the messages of one outbox. Make it with [New].
type Relay struct {
	cfg    Config
	name   string
	time   virtual.Time
	counts struct{ published, again, refused, parked atomic.Int64 }

	// worked is when something was accepted last; failing: nothing was since, and something was refused.
	worked  time.Time
	failing bool
	// troubles are the messages that were refused and are still in the outbox, by id.
	troubles map[string]*trouble
}

// trouble is what is known of a message that was refused.
type trouble struct {
	own  int // refusals that were its own fault
	all  int
	last time.Time
}

// New checks the configuration. Errors name the field.
func New(c Config) (*Relay, error) {
	if c.From == nil {
		return nil, errors.New("outbox: Config.From is missing: the queue that handlers emit to")
	}
	if (c.To == nil) == (c.Route == nil) {
		return nil, errors.New("outbox: Config needs one of To and Route")
	}
	f := c.From.Features()
	for _, x := range []struct {
		has  bool
		what string
	}{
		{f.Orders, "keep groups in order"}, {f.Extends, "extend visibility"}, {f.Delays, "delay"},
		{f.DeadLetters, "keep dead letters"},
	} {
		if !x.has {
			return nil, fmt.Errorf("outbox: Config.From: queue %q (%s) does not %s: %w", f.Name, f.Kind, x.what, driver.ErrUnsupported)
		}
	}
	if c.Batch < 0 || c.MaxAttempts < 0 || c.RetryMin < 0 || c.RetryMax < 0 || c.SendTimeout < 0 {
		return nil, errors.New("outbox: Config.Batch, MaxAttempts, RetryMin, RetryMax and SendTimeout must not be negative")
	}
	c.Batch = orDefault(c.Batch, 100)
	if f.MaxBatch > 0 {
		c.Batch = min(c.Batch, f.MaxBatch)
	}
	c.MaxAttempts = orDefault(c.MaxAttempts, 10)
	c.RetryMin, c.RetryMax = orDefault(c.RetryMin, time.Second), orDefault(c.RetryMax, time.Minute)
	c.RetryMax = max(c.RetryMin, c.RetryMax)
	c.SendTimeout = orDefault(c.SendTimeout, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Relay{cfg: c, name: f.Name, time: virtual.Real{}, troubles: map[string]*trouble{}}, nil
}

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Counts may be called at any time.
func (r *Relay) Counts() Counts {
	return Counts{
		Published: r.counts.published.Load(), Again: r.counts.again.Load(), Refused: r.counts.refused.Load(),
		Parked: r.counts.parked.Load(),
	}
}

// Run publishes until ctx is done; then it finishes what it has in flight and returns nil. It returns no other error:
// whatever fails is logged and tried again. One call at a time.
//
// A message that was refused is tried again, later and later, while others go on. After MaxAttempts refusals it becomes a
// dead letter of the outbox, so that its group goes on too. A refusal counts when it is the message and not the way: the
// sender named it (*driver.ItemError), Route refused it, or others were accepted at the same time or since it was refused
// before. While nothing at all is accepted nothing becomes a dead letter; the relay tries one message at a time.
func (r *Relay) Run(ctx context.Context) error {
	r.time = virtual.Of(ctx)
	for ctx.Err() == nil {
		n := r.cfg.Batch
		if r.failing {
			n = 1 // one is enough to see whether it works again
		}
		ds, err := r.cfg.From.Receive(ctx, n)
		if len(ds) > 0 {
			r.round(ctx, ds)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("outbox: receive failed, trying again", "outbox", r.name, "err", err)
		}
		if err != nil || r.failing {
			r.time.Pause(ctx, r.cfg.RetryMin)
		}
	}
	return nil
}

// backoff is the pause after the nth refusal.
func (r *Relay) backoff(n int) time.Duration {
	d := r.cfg.RetryMin
	for ; n > 1 && d < r.cfg.RetryMax; n-- {
		d *= 2
	}
	return min(d, r.cfg.RetryMax)
}

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/outbox"
)

type relayOptions struct {
	from, to           string
	batch, maxAttempts int
	backoff            config.Range
	visibility         time.Duration
	untilEmpty         bool
}

func (a *app) relayCommand() *cobra.Command {
	o := relayOptions{
		batch: 100, maxAttempts: 10, backoff: config.Range{Min: config.Duration(time.Second), Max: config.Duration(time.Minute)},
		visibility: 30 * time.Second,
	}
	c := &cobra.Command{
		Use: "relay --from URL --to URL", Short: "Relay the messages of a queue to another queue, in order within their groups", Args: noArgs,
		Long: `relay moves messages that handlers emitted into a queue of their own database (the outbox, which committed with their records)
to a queue of another database. A message stays in the outbox until the other side accepted it. Publishing is at least once: copies
carry the same message-id header, and semel consumers recognise them. Several relays may run at once. A message that the other side
keeps refusing becomes a dead letter of the outbox (semel dlq). The first SIGINT or SIGTERM ends what is in flight, and exits 0.`,
		Example: `  semel relay --from 'postgres://shop@db1.example.org/shop?queue=shipments' \
    --to 'postgres://post@db2.example.org/post?queue=shipments'
  semel relay --from 'sqlite:shop.db?queue=mail' --to 'sqlite:mail.db?queue=mail' --until-empty`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.relay(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "URL of the outbox")
	f.StringVar(&o.to, "to", "", "URL of the queue that takes the messages")
	f.IntVar(&o.batch, "batch", o.batch, "messages published together")
	f.IntVar(&o.maxAttempts, "max-attempts", o.maxAttempts, "refusals of a message after which it becomes a dead letter of the outbox")
	f.Var(&o.backoff, "backoff", "pause after a refusal, doubling")
	config.DurationVar(f, &o.visibility, "visibility", "how long a message is hidden from other relays without a heartbeat")
	f.BoolVar(&o.untilEmpty, "until-empty", false, "stop when nothing is visible, in flight or delayed")
	return c
}

func (o relayOptions) check() error {
	from, err := open.Parse("from", o.from)
	if err != nil {
		return err
	}
	to, err := open.Parse("to", o.to)
	switch {
	case err != nil:
		return err
	case open.SamePlace(o.from, o.to) && from.QueueName() == to.QueueName():
		return output.Usage("--from and --to are the same queue: every message would be relayed again").WithHint("--to with another ?queue=")
	case o.batch < 1 || o.maxAttempts < 1:
		return output.Usage("--batch and --max-attempts must be 1 or more")
	}
	return nil
}

func (a *app) relay(ctx context.Context, o relayOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	// Both are opened with the rights of a worker: the outbox is consumed.
	set := open.New(open.Options{OneShot: true, Visibility: o.visibility})
	defer closing(&err, set)
	from, err := set.QueueAs(ctx, "from", o.from)
	if err != nil {
		return err
	}
	to, err := set.QueueAs(ctx, "to", o.to)
	if err != nil {
		return err
	}
	sender, ok := driver.As[driver.Sender](to)
	if !ok {
		return output.Usage("--to: queue %s takes no messages from here", to.Features().Name)
	}
	r, err := outbox.New(outbox.Config{
		From: from, To: sender, Batch: o.batch, MaxAttempts: o.maxAttempts, RetryMin: time.Duration(o.backoff.Min),
		RetryMax: time.Duration(o.backoff.Max), Logger: a.log,
	})
	if errors.Is(err, driver.ErrUnsupported) {
		return output.Usage("--from: %w", err)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	if err := a.runRelay(ctx, r, from, o.untilEmpty); err != nil {
		return err
	}
	n := r.Counts()
	v := map[string]int64{
		"published": n.Published, "again": n.Again, "refused": n.Refused, "parked": n.Parked,
		"elapsed_ms": time.Since(began).Milliseconds(),
	}
	return a.p.Line(v,
		"published %d, again %d, refused %d, parked %d, in %s", n.Published, n.Again, n.Refused, n.Parked, time.Since(began).Round(time.Millisecond))
}

// runRelay runs until a signal comes or, where that was asked for, the outbox is empty.
func (a *app) runRelay(ctx context.Context, r *outbox.Relay, from driver.Queue, untilEmpty bool) error {
	if !untilEmpty {
		return r.Run(ctx)
	}
	q, ok := driver.As[driver.QueueInspector](from)
	if !ok {
		return output.Usage("--until-empty: queue %s cannot count its messages", from.Features().Name)
	}
	ctx, stop := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchEmpty(ctx, q, a.log, stop)
	}()
	err := r.Run(ctx)
	stop(nil)
	<-done
	return err
}

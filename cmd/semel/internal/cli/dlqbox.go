package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// deadLetters are those of an open queue that lie in the scope of the command.
type deadLetters struct {
	ops.Queue
	scope scope
	left  int // dead letters outside of the scope that the last listing met
}

// open opens the dead letters of a queue that exists, with the store of their records.
func (f *dlqFlags) open(ctx context.Context, readOnly bool) (*open.Set, *deadLetters, error) {
	return f.openQueue(ctx, readOnly, existing)
}

// with makes the function of a command that works on open dead letters.
func (f *dlqFlags) with(readOnly bool, run func(*cobra.Command, *deadLetters, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		set, box, err := f.open(cmd.Context(), readOnly)
		if err != nil {
			return err
		}
		defer closing(&err, set)
		return run(cmd, box, args)
	}
}

func (f *dlqFlags) openQueue(
	ctx context.Context, readOnly bool, queue func(context.Context, *open.Set, string) (driver.Queue, error),
) (*open.Set, *deadLetters, error) {
	set := open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: readOnly})
	fail := func(err error) (*open.Set, *deadLetters, error) {
		_ = set.Close()
		return nil, nil, err
	}
	if f.store == "" {
		f.store = f.queue
	}
	if f.queue != "" { // else it is that which is missing
		if err := open.CheckStore(f.store); err != nil {
			return fail(err)
		}
	}
	sc, err := f.of(f.store, f.queue)
	if err != nil {
		return fail(err)
	}
	q, err := queue(ctx, set, f.queue)
	if err != nil {
		return fail(err)
	}
	st, err := set.Store(ctx, f.store)
	if err != nil {
		return fail(err)
	}
	box, err := ops.NewQueue(open.WithDeadLetters(q, st), st)
	if err != nil {
		return fail(output.Usage("%w", err))
	}
	box.CLI = commands(f.store, f.queue, sc, f.consumer)
	return set, &deadLetters{Queue: box, scope: sc}, nil
}

// list lists the dead letters in the scope that are of a kind ("" = any), oldest first.
func (b *deadLetters) list(ctx context.Context, kind string) (out []driver.DeadLetter, err error) {
	all, err := b.DeadLetters.DeadLetters(ctx, 0)
	b.left = 0
	for _, l := range all {
		switch {
		case kind != "" && kind != string(l.Kind):
		case b.scope.hasDeadLetter(&l):
			out = append(out, l)
		default:
			b.left++
		}
	}
	return out, err
}

// one returns the dead letter of an id. One outside of the scope is not found.
func (b *deadLetters) one(ctx context.Context, id string) (driver.DeadLetter, error) {
	l, ok, err := b.DeadLetters.DeadLetter(ctx, id)
	if err != nil || ok && b.scope.hasDeadLetter(&l) {
		return l, err
	}
	missing := output.NotFound("there is no dead letter %q in queue %s", id, b.Name)
	if !ok {
		return driver.DeadLetter{}, missing.WithHint("%s", b.CLI.DeadLetters("ls"))
	}
	owner, from := words.Printable(l.Key.Consumer, 200), words.Printable(l.Message.Queue, 200)
	if owner == "" {
		return driver.DeadLetter{}, missing.WithHint("the dead letter belongs to queue %s: --all-consumers", from)
	}
	return driver.DeadLetter{}, missing.WithHint("the dead letter belongs to %s, queue %s: --consumer %s, or --all-consumers", owner, from, owner)
}

// noteLeft says that the last listing left dead letters out.
func (a *app) noteLeft(b *deadLetters) {
	if b.left > 0 {
		a.p.Notef("left out: %s of other queues or consumers (--all-consumers shows them)", words.Count(b.left, "dead letter"))
	}
}

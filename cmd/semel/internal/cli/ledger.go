package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/ops"
)

// recordFlags are shared by the commands on records.
type recordFlags struct {
	store, queue, tenant string
	scopeFlags
}

// ledger is an open store, with what is needed to find keys and their dead letters.
type ledger struct {
	*recordFlags
	scope scope
	set   *open.Set
	store driver.Store
	insp  driver.RecordInspector
}

func (f *recordFlags) open(ctx context.Context, readOnly bool) (*ledger, error) {
	if f.store == "" {
		f.store = f.queue
	}
	sc, err := f.of(f.store, f.queue)
	if err != nil {
		return nil, err
	}
	l := &ledger{recordFlags: f, scope: sc, set: open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: readOnly})}
	st, err := l.set.Store(ctx, f.store)
	if err != nil {
		return nil, err
	}
	l.store = st
	insp, ok := driver.As[driver.RecordInspector](st)
	if !ok {
		return nil, errors.Join(output.Usage("store %s shows no records", st.Features().Name), l.set.Close())
	}
	l.insp = insp
	return l, nil
}

// with makes the function of a command that works on an open ledger.
func (f *recordFlags) with(readOnly bool, run func(*cobra.Command, *ledger, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		l, err := f.open(cmd.Context(), readOnly)
		if err != nil {
			return err
		}
		defer closing(&err, l.set)
		return run(cmd, l, args)
	}
}

// flags are those by which other commands find the store, and the scope.
func (f *recordFlags) flags() []string {
	out := []string{"--store", open.Redact(f.store)}
	if f.queue != "" && f.queue != f.store {
		out = append(out, "--queue", open.Redact(f.queue))
	}
	if f.consumer != "" {
		out = append(out, "--consumer", f.consumer)
	}
	return out
}

// command is a command on the store, to be pasted.
func (f *recordFlags) command(args ...string) string {
	if f.tenant != "" {
		args = append(args, "--tenant", f.tenant)
	}
	return words.Command(append(args, f.flags()...)...)
}

// find returns the record of a key in the scope. A key of several consumers is an error that names them, a key that only
// others have is not found.
func (l *ledger) find(ctx context.Context, raw string) (driver.Record, error) {
	var none driver.Record
	if err := key.Check(raw); err != nil {
		return none, output.Usage("%w", err)
	}
	candidates := []string{l.scope.consumer}
	if l.scope.consumer == "" { // a consumer is named after its queue unless somebody chose otherwise
		var err error
		if candidates, err = l.set.Queues(ctx, "store", l.recordFlags.store); err != nil {
			return none, err
		}
	}
	var found, elsewhere []driver.Record
	for _, c := range candidates {
		r, ok, err := l.insp.Record(ctx, driver.Key{Consumer: c, Tenant: l.tenant, Raw: raw})
		if err != nil {
			return none, err
		}
		if ok {
			found = append(found, r)
		}
	}
	if len(found) == 0 && (l.scope.consumer == "" || l.scope.byQueue) { // --consumer is certain: no look at all records
		var err error
		if found, elsewhere, err = l.scan(ctx, raw); err != nil {
			return none, err
		}
	}
	switch len(found) {
	case 0:
		return none, l.scope.notFound(raw, elsewhere)
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, r := range found {
		names[i] = r.Key.Consumer
	}
	return none, output.Usage("key %q has records of %d consumers: %s", raw, len(found), join(names)).
		WithHint("--consumer %s", names[0])
}

// scan looks for a key among all records, in the scope and elsewhere.
func (l *ledger) scan(ctx context.Context, raw string) (found, elsewhere []driver.Record, err error) {
	err = l.scanAll(ctx, driver.RecordFilter{}, func(r driver.Record) error {
		switch {
		case r.Key.Raw != raw || l.tenant != "" && l.tenant != r.Key.Tenant:
		case l.scope.has(r.Key):
			found = append(found, r)
		default:
			elsewhere = append(elsewhere, r)
		}
		return nil
	})
	return found, elsewhere, err
}

// box opens the queue that holds the dead letter id, for working on it: --queue, the URL's, else whichever has it.
func (l *ledger) box(ctx context.Context, consumer, id string) (ops.Queue, error) {
	raw := l.queue
	if raw == "" {
		raw = l.recordFlags.store
	}
	t, err := open.Parse("queue", raw)
	if err == nil {
		err = t.HasQueues("queue")
	}
	if err != nil {
		return ops.Queue{}, err
	}
	names := []string{t.Queue}
	if t.Queue == "" {
		all, err := l.set.Queues(ctx, "queue", raw)
		if err != nil {
			return ops.Queue{}, err
		}
		names = append([]string{consumer}, all...)
	}
	var first ops.Queue
	for i, name := range names {
		q, err := l.set.QueueOf(ctx, t, name)
		if err != nil {
			return ops.Queue{}, err
		}
		b, err := ops.NewQueue(q, l.store)
		if err != nil {
			return b, output.Usage("%w", err)
		}
		if b.CLI = commands(l.recordFlags.store, l.queue, l.scope, consumer); i == 0 {
			first = b
		}
		if _, ok, err := b.DeadLetters.DeadLetter(ctx, id); err != nil || ok {
			return b, err
		}
	}
	return first, nil
}

package cli

import (
	"context"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/letters"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// recordFlags are shared by the commands on records.
type recordFlags struct{ store, queue, consumer, tenant string }

// ledger is an open store, with what is needed to find keys and their letters.
type ledger struct {
	*recordFlags
	set   *open.Set
	store driver.Store
	insp  driver.RecordInspector
}

func (f *recordFlags) open(ctx context.Context, readOnly bool) (*ledger, error) {
	if f.store == "" {
		f.store = f.queue
	}
	l := &ledger{recordFlags: f, set: open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: readOnly})}
	st, err := l.set.Store(ctx, f.store)
	if err != nil {
		return nil, err
	}
	l.store = st
	insp, ok := st.(driver.RecordInspector)
	if !ok {
		return nil, errors.Join(output.Usage("store %s shows no records", st.Features().Name), l.set.Close())
	}
	l.insp = insp
	return l, nil
}

// find returns the record of a key. Without --consumer it is looked for under the queue that the URL names, then under
// all; a key of several consumers is an error that names them.
func (l *ledger) find(ctx context.Context, raw string) (driver.Record, error) {
	var none driver.Record
	if err := semel.CheckKey(raw); err != nil {
		return none, output.Usage("%w", err)
	}
	if l.consumer != "" {
		r, ok, err := l.insp.Record(ctx, driver.Key{Consumer: l.consumer, Tenant: l.tenant, Raw: raw})
		if err != nil || ok {
			return r, err
		}
		return none, output.NotFound("there is no record of key %q for consumer %q", raw, l.consumer)
	}
	candidates, err := l.consumers(ctx)
	if err != nil {
		return none, err
	}
	var found []driver.Record
	for _, c := range candidates {
		r, ok, err := l.insp.Record(ctx, driver.Key{Consumer: c, Tenant: l.tenant, Raw: raw})
		if err != nil {
			return none, err
		}
		if ok {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		if found, err = l.scan(ctx, raw); err != nil {
			return none, err
		}
	}
	switch len(found) {
	case 0:
		return none, output.NotFound("there is no record of key %q", raw)
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

// consumers guesses whose records there are: a consumer is named after its queue unless somebody chose otherwise.
func (l *ledger) consumers(ctx context.Context) ([]string, error) {
	if name, err := l.named(); err != nil || name != "" {
		return []string{name}, err
	}
	return l.set.Queues(ctx, "store", l.recordFlags.store)
}

// named is the queue that the store's URL names, else the one that --queue does; "" when neither names one.
func (l *ledger) named() (string, error) {
	t, err := open.Parse("store", l.recordFlags.store)
	if err == nil && t.Queue == "" && l.queue != "" { // the records are elsewhere than the queue
		t, err = open.Parse("queue", l.queue)
	}
	return t.Queue, err
}

// scan looks through all records.
func (l *ledger) scan(ctx context.Context, raw string) ([]driver.Record, error) {
	all, err := l.insp.Records(ctx, driver.RecordFilter{})
	if err != nil {
		return nil, err
	}
	var out []driver.Record
	for _, r := range all {
		if r.Key.Raw == raw && (l.tenant == "" || l.tenant == r.Key.Tenant) {
			out = append(out, r)
		}
	}
	return out, nil
}

// box opens the queue that holds the letter id, for working on it: --queue, the URL's, else whichever has it.
func (l *ledger) box(ctx context.Context, consumer, id string) (letters.Box, error) {
	raw := l.queue
	if raw == "" {
		raw = l.recordFlags.store
	}
	t, err := open.Parse("queue", raw)
	if err == nil {
		err = t.HasQueues("queue")
	}
	if err != nil {
		return letters.Box{}, err
	}
	names := []string{t.Queue}
	if t.Queue == "" {
		all, err := l.set.Queues(ctx, "queue", raw)
		if err != nil {
			return letters.Box{}, err
		}
		names = append([]string{consumer}, all...)
	}
	var first letters.Box
	for i, name := range names {
		q, err := l.set.QueueOf(ctx, t, name)
		if err != nil {
			return letters.Box{}, err
		}
		b, err := letters.NewBox(q, l.store)
		if err != nil {
			return b, output.Usage("%w", err)
		}
		if i == 0 {
			first = b
		}
		if _, ok, err := b.Letters.Letter(ctx, id); err != nil || ok {
			return b, err
		}
	}
	return first, nil
}

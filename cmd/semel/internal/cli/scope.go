package cli

import (
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// scopeHelp is in the help of every command with a scope.
const scopeHelp = `A command covers one consumer: that of --consumer, or else the queue in the URL of --store or --queue (a worker's consumer is its
queue by default). It does not find keys of other consumers. --all-consumers, or a URL without a queue, means all consumers of the
store.`

// scopeFlags choose the consumer that an operator's command acts on.
type scopeFlags struct {
	consumer string
	all      bool
}

func (f *scopeFlags) bind(p *pflag.FlagSet) {
	p.StringVar(&f.consumer, "consumer", "", "only keys of this consumer (default: the queue of the URL, else all)")
	p.BoolVar(&f.all, "all-consumers", false, "keys of all consumers of the store")
}

// scope is the consumer that a command acts on.
type scope struct {
	consumer string // "" = all
	queue    string // that the URLs name, "" = none
	byQueue  bool   // the consumer is the queue
}

// of decides the scope: --all-consumers, --consumer, the queue that the URLs name, all.
func (f *scopeFlags) of(store, queue string) (scope, error) {
	if f.all {
		return scope{}, nil
	}
	names, err := queuesOf(store, queue)
	switch {
	case err != nil:
		return scope{}, err
	case f.consumer != "" && len(names) > 0:
		return scope{consumer: f.consumer, queue: names[len(names)-1]}, nil
	case f.consumer != "" || len(names) == 0:
		return scope{consumer: f.consumer}, nil
	case len(names) == 1:
		return scope{consumer: names[0], queue: names[0], byQueue: true}, nil
	}
	return scope{}, output.Usage("--store names queue %q, and --queue names %q: whose keys are meant?", names[0], names[1]).
		WithHint("--consumer %s, or --all-consumers", names[0])
}

// queuesOf lists the queues that the URLs name: that of --queue comes last.
func queuesOf(store, queue string) (names []string, err error) {
	for _, u := range [][2]string{{"store", store}, {"queue", queue}} {
		if u[1] == "" {
			continue
		}
		t, err := open.Parse(u[0], u[1])
		if err != nil {
			return nil, err
		}
		if t.Queue != "" && !slices.Contains(names, t.Queue) {
			names = append(names, t.Queue)
		}
	}
	return names, nil
}

// has reports that a key lies in the scope.
func (s scope) has(k driver.Key) bool { return s.consumer == "" || s.consumer == k.Consumer }

// hasDeadLetter reports that a dead letter lies in the scope: it is of the consumer, or of the URL's queue if --consumer names none
// or if its consumer is unknown. Several queues may share a dead-letter queue.
func (s scope) hasDeadLetter(l *driver.DeadLetter) bool {
	ofQueue := l.Message.Queue == s.queue || l.Message.Queue == ""
	return s.has(l.Key) || ofQueue && (s.byQueue || l.Key.Consumer == "")
}

// notFound is the error for a key without a record in the scope, with a hint where it has one.
func (s scope) notFound(raw string, elsewhere []driver.Record) error {
	if s.consumer == "" {
		return output.NotFound("there is no record of key %q", raw)
	}
	err := output.NotFound("there is no record of key %q for consumer %q", raw, s.consumer)
	if len(elsewhere) == 0 {
		return err
	}
	var owners []string
	for _, r := range elsewhere {
		owners = append(owners, words.Printable(r.Key.Consumer, 200))
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	return err.WithHint("the key belongs to %s: --consumer %s, or --all-consumers", join(owners), owners[0])
}

// noteOutside explains an empty list: only other consumers have records.
func (a *app) noteOutside(ctx context.Context, l *ledger) {
	if l.scope.consumer == "" {
		return
	}
	some, err := l.insp.Records(ctx, driver.RecordFilter{Limit: 1})
	if err != nil || len(some) == 0 || l.scope.has(some[0].Key) {
		return
	}
	a.p.Notef("no such records of consumer %q; the store has records of others, such as %q: --consumer, or --all-consumers",
		l.scope.consumer, some[0].Key.Consumer)
}

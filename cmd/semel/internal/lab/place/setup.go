package place

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// DatabaseFile is the name of a run's SQLite file.
const DatabaseFile = "demo.db"

// Setup makes the places of runs, each with queues, tables, schemas or files of its own, so that runs see nothing of each
// other. It removes them as well.
type Setup struct {
	queue, store side
	// stem is in all names; another Setup has another one.
	stem  string
	fakes *fakes
	made  []made
}

// made is something that a Setup made and has to remove.
type made struct{ flag, raw string }

// NewSetup finds out where runs are to be, and starts the fakes when they are needed. seed decides what of them is left to
// chance. Errors are of usage. Close it.
func NewSetup(w Where, seed uint64) (*Setup, error) {
	queue, store, err := w.sides()
	if err != nil {
		return nil, err
	}
	s := &Setup{queue: queue, store: store, stem: strings.ToLower(rand.Text()[:8])}
	if queue.fake() || store.fake() {
		if s.fakes, err = startFakes(seed); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// names are the places for people, by scheme.
var names = map[string]string{
	"sqlite": "one SQLite file", "postgres": "one schema of a PostgreSQL database", "mysql": "one MySQL database",
	"redis": "keys of a Redis", "nats": "a stream of NATS", "amqp": "a queue of RabbitMQ",
	"sqs": "a queue of SQS", "dynamodb": "tables of DynamoDB",
}

// String is the place for people.
func (s *Setup) String() string {
	name := func(d side) string {
		if d.fake() {
			return names[d.scheme] + " (local fake)"
		}
		return names[d.scheme]
	}
	if s.queue == s.store {
		return name(s.queue)
	}
	return name(s.queue) + ", and " + name(s.store)
}

// MinVisibility is the shortest visibility with which runs make sense here. SQS counts in whole seconds; over a network a
// heartbeat needs some time.
func (s *Setup) MinVisibility() time.Duration {
	switch {
	case !s.far():
		return 0
	case s.queue.scheme == "sqs" && !s.queue.fake(), s.store.scheme == "dynamodb" && !s.store.fake():
		return 2 * time.Second
	}
	return time.Second
}

// lateReturn is the visibility with which PostgreSQL shows what comes of one that ends: on a loaded machine it looks for
// messages that are visible again every other second.
const lateReturn = 4 * time.Second

// Unhurried is the shortest visibility with which a scenario shows what it is about; 0 = its own.
func (s *Setup) Unhurried(c plan.Scenario) time.Duration {
	if s.queue.scheme == "postgres" && c.AboutVisibility() {
		return lateReturn
	}
	return 0
}

// far reports whether a service of AWS, or a fake of one, is in the pair.
func (s *Setup) far() bool { return s.queue.scheme == "sqs" || s.store.scheme == "dynamodb" }

// Ephemeral reports that nothing can be kept: the fakes end with the Setup.
func (s *Setup) Ephemeral() bool { return s.fakes != nil }

// UnsupportedError reports a scenario that cannot run in a place. It is neither a verdict nor a failure: nothing was tried.
type UnsupportedError struct{ Scenario, Why string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s cannot be run here: %s", e.Scenario, e.Why)
}

// Supports returns an *UnsupportedError if a run with this guard needs what the place does not have.
func (s *Setup) Supports(c plan.Scenario, g plan.Guard) error {
	if name := map[string]string{"dynamodb": "DynamoDB", "redis": "Redis"}[s.store.scheme]; c.Designs[g] == plan.SemelOutbox && name != "" {
		return &UnsupportedError{c.Name, name + " has no queue that a message could be put into in the transaction of the record"}
	}
	return nil
}

// Make makes the place of a run. run is a word, dir the run's folder, which is there.
func (s *Setup) Make(ctx context.Context, run, dir string, visibility time.Duration) (p URLs, err error) {
	if s.fakes != nil {
		p.Fakes = s.fakes.url
	}
	switch s.store.scheme {
	case "dynamodb":
		p.Store, err = s.makeTables(ctx, p, run)
	case "redis":
		p.Store, err = s.makePrefix(ctx, s.store, run)
	default:
		p.Store, err = s.makeSQL(ctx, "store", s.store, run, dir)
	}
	if err != nil {
		return p, err
	}
	switch s.queue.scheme {
	case "sqs":
		p.Queue, err = s.makeQueue(ctx, p, run, visibility)
	case "nats", "redis":
		p.Queue, err = s.makeBrokerQueue(ctx, p, run, open.NewQueue{Visibility: visibility})
	case "amqp":
		p.Queue, err = s.makeBrokerQueue(ctx, p, run, open.NewQueue{})
	default:
		if p.Queue = p.Store; s.queue != s.store {
			p.Queue, err = s.makeSQL(ctx, "queue", s.queue, run, dir)
		}
		p.Queue = withQueue(p.Queue)
	}
	return p, err
}

// name is that of a queue or table of a run: first the one in the URL, so that rights may hang on it.
func (s *Setup) name(d side, run string) string {
	first, _ := named(d.url)
	return s.nameAs(first, run)
}

func (s *Setup) nameAs(first, run string) string {
	if first == "" {
		first = "semel"
	}
	return first[:min(len(first), 40)] + ours + s.stem + "-" + run
}

// rest are the parameters that the URLs of runs have in common with that of the side.
func (s *Setup) rest(d side) string {
	if d.fake() {
		return "region=" + fakeRegion + "&endpoint=" + url.QueryEscape(s.fakes.url)
	}
	_, q := named(d.url)
	for name := range q {
		if !slices.Contains(sharedParams, name) {
			q.Del(name)
		}
	}
	return q.Encode()
}

// Remove removes what was made, also after ctx has ended.
func (s *Setup) Remove(ctx context.Context) error {
	all := s.made
	s.made = nil
	return removeAll(ctx, URLs{}, all)
}

// Close ends the fakes. It removes nothing.
func (s *Setup) Close() error {
	if s.fakes == nil {
		return nil
	}
	return s.fakes.close()
}

// ours is in the names of everything that a Setup makes on servers: nothing else is removed.
const ours = "-lab-"

// removing bounds the removal of everything.
const removing = time.Minute

// Remove removes a place whose Setup is gone, after a process was killed, say. It does what [Setup.Remove] does. Missing
// parts are no error; the fakes ended with their process. What a Setup did not make is refused.
func Remove(ctx context.Context, p URLs) error {
	return removeAll(ctx, p, []made{{"store", p.Store}, {"queue", p.Queue}})
}

func removeAll(ctx context.Context, p URLs, all []made) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
	defer cancel()
	var errs []error
	for _, m := range slices.Backward(all) {
		if err := remove(ctx, p, m); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}

func remove(ctx context.Context, p URLs, m made) error {
	if m.raw == "" {
		return nil
	}
	t, err := open.Parse(m.flag, m.raw)
	if err != nil {
		return err
	}
	name, q := named(m.raw)
	switch t.Scheme {
	case "sqlite":
		return removeFile(t.Path)
	case "postgres", "mysql":
		return dropSchema(ctx, m)
	case "redis":
		name, err = open.RedisPrefix(m.raw)
	case "nats", "amqp":
		name = t.Queue
	}
	switch {
	case err != nil:
		return err
	case p.fake(q):
		return nil
	case !strings.Contains(name, ours):
		return fmt.Errorf("%s was not made by the lab: left alone", t.Shown)
	}
	switch t.Scheme {
	case "redis":
		return removePrefix(ctx, m.raw, name)
	case "nats":
		return open.RemoveNATS(ctx, m.raw)
	case "amqp":
		return open.RemoveRabbitMQ(ctx, m.raw)
	}
	return removeAWS(ctx, m)
}

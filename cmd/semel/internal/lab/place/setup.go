package place

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
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
	stem    string
	fakes   *fakes
	removes []func(context.Context) error
}

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

// String is the place for people.
func (s *Setup) String() string {
	name := func(d side) string {
		switch d.scheme {
		case "sqlite":
			return "one SQLite file"
		case "postgres":
			return "one schema of a PostgreSQL database"
		case "sqs":
			return s.fakedName(d, "a queue of SQS")
		case "nats":
			return "a stream of NATS"
		case "amqp":
			return "a queue of RabbitMQ"
		}
		if d.scheme == "redis" {
			return "keys of a Redis"
		}
		return s.fakedName(d, "tables of DynamoDB")
	}
	if s.queue == s.store {
		return name(s.queue)
	}
	return name(s.queue) + ", and " + name(s.store)
}

func (s *Setup) fakedName(d side, name string) string {
	if d.fake() {
		return name + " (local fake)"
	}
	return name
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

// Make makes the place of a run. run is a word, dir the run's folder, which is there.
func (s *Setup) Make(ctx context.Context, run, dir string, visibility time.Duration) (p URLs, err error) {
	if s.fakes != nil {
		p.Fakes = s.fakes.url
	}
	if p.Store, err = s.makeStore(ctx, p, run, dir); err != nil {
		return p, err
	}
	switch {
	case s.queue.scheme == "sqs":
		p.Queue, err = s.makeQueue(ctx, p, run, visibility)
		return p, err
	case s.queue.scheme == "nats":
		p.Queue, err = s.makeBrokerQueue(ctx, run, open.NewQueue{Visibility: visibility}, open.RemoveNATS)
		return p, err
	case s.queue.scheme == "redis":
		p.Queue, err = s.makeRedisQueue(ctx, p, run, visibility)
		return p, err
	case s.queue.scheme == "amqp":
		p.Queue, err = s.makeBrokerQueue(ctx, run, open.NewQueue{}, open.RemoveRabbitMQ)
		return p, err
	case s.queue == s.store:
		p.Queue = p.Store
	default:
		if p.Queue, err = s.makeSQL(ctx, "queue", s.queue, run, dir); err != nil {
			return p, err
		}
	}
	p.Queue = addParam(p.Queue, "queue", QueueName)
	return p, nil
}

func (s *Setup) makeStore(ctx context.Context, p URLs, run, dir string) (string, error) {
	switch s.store.scheme {
	case "dynamodb":
		return s.makeTables(ctx, p, run)
	case "redis":
		return s.makePrefix(ctx, s.store, run)
	}
	return s.makeSQL(ctx, "store", s.store, run, dir)
}

// makeSQL makes a file or a schema and returns its URL.
func (s *Setup) makeSQL(ctx context.Context, flag string, d side, run, dir string) (string, error) {
	if d.scheme == "postgres" {
		return s.makeSchema(ctx, flag, d.url, run)
	}
	if d.url == "" {
		return File(filepath.Join(dir, DatabaseFile)).Store, nil
	}
	t, err := open.Parse(flag, d.url)
	if err != nil {
		return "", err
	}
	end := filepath.Ext(t.Path)
	path := strings.TrimSuffix(t.Path, end) + "-lab-" + s.stem + "-" + run + end
	s.removes = append(s.removes, func(context.Context) error { return removeFile(path) })
	return File(path).Store, nil
}

// name is that of a queue or table of a run: first the one in the URL, so that rights may hang on it.
func (s *Setup) name(d side, run string) string {
	first := "semel"
	if u, err := url.Parse(d.url); err == nil && u.Host != "" {
		first = u.Host[:min(len(u.Host), 40)]
	}
	return first + "-lab-" + s.stem + "-" + run
}

// rest are the parameters that the URLs of runs have in common with that of the side.
func (s *Setup) rest(d side) string {
	if d.fake() {
		return "region=" + fakeRegion + "&endpoint=" + url.QueryEscape(s.fakes.url)
	}
	u, err := url.Parse(d.url)
	if err != nil {
		return ""
	}
	q := u.Query()
	for name := range q {
		if !slices.Contains(sharedParams, name) {
			q.Del(name)
		}
	}
	return q.Encode()
}

// removing bounds the removal of everything.
const removing = time.Minute

// Remove removes what was made, also after ctx has ended.
func (s *Setup) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
	defer cancel()
	var errs []error
	for _, remove := range slices.Backward(s.removes) {
		if err := remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	s.removes = nil
	return errors.Join(errs...)
}

// Close ends the fakes. It removes nothing.
func (s *Setup) Close() error {
	if s.fakes == nil {
		return nil
	}
	return s.fakes.close()
}

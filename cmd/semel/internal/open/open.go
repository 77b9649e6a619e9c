package open

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// Options say how a command opens what it is given.
type Options struct {
	// OneShot refuses memory://: what is in it ends with the command.
	OneShot bool
	// MustExist refuses to create a database.
	MustExist bool
	// ReadOnly opens for inspection what cannot be written: a file without the permission, a standby.
	ReadOnly bool
	// Visibility of the queues; 0 = the adapter's default.
	Visibility time.Duration
	// Committers is how many claims and commits a worker has under way at once: databases behind a network need
	// connections for them. 0 = the command is no worker.
	Committers int
}

// Database is an open place with queues and a record store. Each adapter has a file here that makes one.
type Database interface {
	// Queue returns the queue of that name; visible is how long its Receive keeps a message, 0 = the adapter's default.
	Queue(name string, visible time.Duration) driver.Queue
	Store() driver.Store
	// Queues lists the names of the queues, sorted.
	Queues(ctx context.Context) ([]string, error)
	Close() error
}

// Set opens queues and stores, one database per place, so that a queue and a store of the same place join. Close it.
type Set struct {
	o   Options
	dbs map[string]Database
}

// New makes an empty set.
func New(o Options) *Set { return &Set{o: o, dbs: map[string]Database{}} }

// Close closes every database that was opened.
func (s *Set) Close() error {
	var errs []error
	for _, db := range s.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// Queue opens the queue of a URL. Errors are of usage (exit 2) or unreachable (exit 4).
func (s *Set) Queue(ctx context.Context, raw string) (driver.Queue, error) {
	return s.QueueAs(ctx, "queue", raw)
}

// QueueAs is Queue for a flag of another name.
func (s *Set) QueueAs(ctx context.Context, flag, raw string) (driver.Queue, error) {
	t, err := s.parse(flag, raw)
	if err != nil {
		return nil, err
	}
	return s.QueueOf(ctx, t, t.QueueName())
}

// QueueOf opens the queue name in the place that t names.
func (s *Set) QueueOf(ctx context.Context, t Target, name string) (driver.Queue, error) {
	db, err := s.db(ctx, t)
	if err != nil {
		return nil, err
	}
	return db.Queue(name, s.o.Visibility), nil
}

// Store opens the store of a URL. Errors are as those of Queue.
func (s *Set) Store(ctx context.Context, raw string) (driver.Store, error) {
	t, err := s.parse("store", raw)
	if err != nil {
		return nil, err
	}
	db, err := s.db(ctx, t)
	if err != nil {
		return nil, err
	}
	return db.Store(), nil
}

// Queues lists the names of the queues in the place that a URL names, sorted.
func (s *Set) Queues(ctx context.Context, flag, raw string) ([]string, error) {
	t, err := s.parse(flag, raw)
	if err != nil {
		return nil, err
	}
	db, err := s.db(ctx, t)
	if err != nil {
		return nil, err
	}
	return db.Queues(ctx)
}

// parse refuses what the command cannot use.
func (s *Set) parse(flag, raw string) (Target, error) {
	t, err := Parse(flag, raw)
	if err != nil {
		return t, err
	}
	if t.Ephemeral() && s.o.OneShot {
		return t, output.Usage("--%s memory:// ends with the process, so this command would see nothing of it", flag).
			WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	return t, nil
}

func (s *Set) db(ctx context.Context, t Target) (Database, error) {
	if db := s.dbs[t.place]; db != nil {
		return db, nil
	}
	db, err := t.kind.open(ctx, t, s.o)
	if err != nil {
		return nil, err
	}
	s.dbs[t.place] = db
	return db, nil
}

// Migrate brings the schema of the database that a URL names up to date.
func Migrate(ctx context.Context, raw string) (t Target, from, to int, err error) {
	if t, err = withSchema(raw); err != nil {
		return t, 0, 0, err
	}
	from, to, err = t.kind.migrate(ctx, t)
	return t, from, to, err
}

// SchemaSQL is the SQL that makes the schema in an empty database of the URL's kind.
func SchemaSQL(raw string) (string, error) {
	t, err := withSchema(raw)
	if err != nil {
		return "", err
	}
	return t.kind.schemaSQL(), nil
}

func withSchema(raw string) (Target, error) {
	t, err := Parse("store", raw)
	if err == nil && t.kind.migrate == nil {
		err = output.Usage("--store %s:// has no schema", t.Scheme).WithHint("--store 'sqlite:orders.db'")
	}
	return t, err
}

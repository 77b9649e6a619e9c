package open

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// Options say how a command opens what it is given.
type Options struct {
	// OneShot refuses memory://: what is in it ends with the command.
	OneShot bool
	// MustExist refuses to create a database.
	MustExist bool
	// ReadOnly opens for inspection where the file cannot be written.
	ReadOnly bool
	// Visibility of the queues; 0 = the adapter's default.
	Visibility time.Duration
}

// Set opens queues and stores, one database per file, so that a queue and a store of the same URL join. Close it.
type Set struct {
	o   Options
	dbs map[string]*sqlite.DB
	mem *memory.DB
}

// New makes an empty set.
func New(o Options) *Set { return &Set{o: o, dbs: map[string]*sqlite.DB{}} }

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
	t, err := s.parse("queue", raw)
	if err != nil {
		return nil, err
	}
	return s.QueueOf(ctx, t, t.QueueName())
}

// QueueOf opens the queue name in the place that t names.
func (s *Set) QueueOf(ctx context.Context, t Target, name string) (driver.Queue, error) {
	if t.Scheme == "memory" {
		return s.memory().Queue(name), nil
	}
	db, err := s.db(ctx, t)
	if err != nil {
		return nil, err
	}
	if s.o.Visibility > 0 {
		return db.QueueWith(name, s.o.Visibility), nil
	}
	return db.Queue(name), nil
}

// Store opens the store of a URL. Errors are as those of Queue.
func (s *Set) Store(ctx context.Context, raw string) (driver.Store, error) {
	t, err := s.parse("store", raw)
	if err != nil {
		return nil, err
	}
	if t.Scheme == "memory" {
		return s.memory().Store(), nil
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
	if t.Scheme == "memory" {
		return nil, output.Usage("--%s: memory:// lists no queues", flag)
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
	if t.Scheme == "memory" && s.o.OneShot {
		return t, output.Usage("--%s memory:// ends with the process, so this command would see nothing of it", flag).
			WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	return t, nil
}

func (s *Set) memory() *memory.DB {
	if s.mem == nil {
		var o []memory.Option
		if s.o.Visibility > 0 {
			o = append(o, memory.WithVisibility(s.o.Visibility))
		}
		s.mem = memory.Open(o...)
	}
	return s.mem
}

func (s *Set) db(ctx context.Context, t Target) (*sqlite.DB, error) {
	if db := s.dbs[t.Path]; db != nil {
		return db, nil
	}
	o := sqlite.Options{MustExist: s.o.MustExist, Visibility: s.o.Visibility}
	if s.o.ReadOnly {
		o.ReadOnly = !writable(t.Path)
	}
	db, err := sqlite.Open(ctx, t.Path, o)
	if err != nil {
		return nil, unreachable(t, err)
	}
	s.dbs[t.Path] = db
	return db, nil
}

// writable reports whether the file can be written by this process; it does not change it.
func writable(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

func unreachable(t Target, err error) error {
	e := output.Unreachable("open %s: %w", t.Shown, err)
	var schema *sqlite.SchemaError
	switch {
	case errors.As(err, &schema) && schema.Have > schema.Want:
		return e.WithHint("a newer semel")
	case errors.As(err, &schema):
		return e.WithHint("semel migrate --store 'sqlite:%s'", t.Shown)
	case errors.Is(err, fs.ErrNotExist):
		return e.WithHint("check the path (it is relative to the working directory); semel queue create makes a database " +
			"in a directory that exists")
	case errors.Is(err, fs.ErrPermission):
		return e.WithHint("check the permissions of the file and of its directory, which SQLite writes to as well")
	}
	return e
}

// Migrate brings the schema of the database that a URL names up to date.
func Migrate(ctx context.Context, raw string) (t Target, from, to int, err error) {
	if t, err = Parse("store", raw); err != nil {
		return t, 0, 0, err
	}
	if t.Scheme == "memory" {
		return t, 0, 0, output.Usage("--store memory:// has no schema").WithHint("--store 'sqlite:orders.db'")
	}
	if from, to, err = sqlite.Migrate(ctx, t.Path); err != nil {
		return t, from, to, unreachable(t, err)
	}
	return t, from, to, nil
}

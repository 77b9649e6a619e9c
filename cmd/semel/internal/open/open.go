package open

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
)

// Options say how a command opens what it is given.
type Options struct {
	// OneShot refuses memory://: what is in it ends with the command.
	OneShot bool
	// MustExist refuses to create a database, QueueMustExist one for a queue: where nobody ever sent anything.
	MustExist, QueueMustExist bool
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
	// It is the queue's kind that decides whether one that does not exist is made, or ErrNoQueue.
	Queue(ctx context.Context, name string, visible time.Duration) (driver.Queue, error)
	Store(ctx context.Context) (driver.Store, error)
	// Queues lists the names of the queues, sorted.
	Queues(ctx context.Context) ([]string, error)
	Close() error
}

// ErrNoQueue reports a queue that does not exist, where opening it does not make one.
var ErrNoQueue = sqs.ErrNoQueue

// NewQueue is how a queue is made, where its kind takes wishes.
type NewQueue struct {
	// Visibility is how long its deliveries are kept unless the receiver says otherwise; MaxReceives after how many of them
	// the service itself moves a message to the dead letters; Retention how long it keeps a message. 0 = the adapter's default.
	Visibility, Retention time.Duration
	MaxReceives           int
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
	t, err := s.parseQueue(flag, raw)
	if err != nil {
		return nil, err
	}
	return s.QueueOf(ctx, t, t.QueueName())
}

// Create makes the queue of a URL, where it is not there, and opens it.
func (s *Set) Create(ctx context.Context, flag, raw string, how NewQueue) (driver.Queue, error) {
	t, err := s.parseQueue(flag, raw)
	if err != nil {
		return nil, err
	}
	if t.kind.create != nil {
		if err := t.kind.create(ctx, t, how); err != nil {
			return nil, err
		}
	} else if how != (NewQueue{}) {
		return nil, output.Usage("queues of %s:// are made without settings: they are the worker's", t.Scheme).
			WithHint("leave --default-visibility, --max-receives and --message-retention away")
	}
	q, err := s.QueueOf(ctx, t, t.QueueName())
	if err != nil {
		return nil, err
	}
	if c, ok := q.(interface {
		Create(ctx context.Context) error
	}); ok && t.kind.create == nil {
		return q, c.Create(ctx)
	}
	return q, nil
}

// QueueOf opens the queue name in the place that t names.
func (s *Set) QueueOf(ctx context.Context, t Target, name string) (driver.Queue, error) {
	o := s.o
	o.MustExist = o.MustExist || o.QueueMustExist
	db, err := s.dbWith(ctx, t, o)
	if err != nil {
		return nil, err
	}
	return db.Queue(ctx, name, s.o.Visibility)
}

// Store opens the store of a URL. Errors are as those of Queue.
func (s *Set) Store(ctx context.Context, raw string) (driver.Store, error) {
	t, err := s.parse("store", raw)
	if err != nil {
		return nil, err
	}
	if err := t.HasRecords(); err != nil {
		return nil, err
	}
	db, err := s.dbWith(ctx, t, s.o)
	if err != nil {
		return nil, err
	}
	return db.Store(ctx)
}

// Pair opens a queue and the store of its records. See [WithDeadLetters].
func (s *Set) Pair(ctx context.Context, queue, store string) (driver.Queue, driver.Store, error) {
	q, err := s.Queue(ctx, queue)
	if err != nil {
		return nil, nil, err
	}
	st, err := s.Store(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	return WithDeadLetters(q, st), st, nil
}

// WithDeadLetters keeps the dead letters of a queue that has no place for them in the database of the records, where that
// can: dead_letters= in the URL of an SQS queue names another place.
func WithDeadLetters(q driver.Queue, s driver.Store) driver.Queue {
	f := q.Features()
	if f.DeadLetters {
		return q
	}
	if keeper, ok := driver.As[driver.DeadLetterStore](s); ok {
		if box := keeper.DeadLetterQueue(f.Name); box != nil {
			return deadletter.With(q, box)
		}
	}
	return q
}

// Queues lists the names of the queues in the place that a URL names, sorted. A place that only has records has none.
func (s *Set) Queues(ctx context.Context, flag, raw string) ([]string, error) {
	t, err := s.parse(flag, raw)
	if err != nil {
		return nil, err
	}
	if flag == "store" && t.kind.noQueues != "" {
		return nil, nil
	}
	if err := t.HasQueues(flag); err != nil {
		return nil, err
	}
	db, err := s.dbWith(ctx, t, s.o)
	if err != nil {
		return nil, err
	}
	return db.Queues(ctx)
}

// noQueues is a Database without queues. A Set asks HasQueues first, so that these methods are not reached.
type noQueues struct{ t Target }

func (d noQueues) Queue(context.Context, string, time.Duration) (driver.Queue, error) {
	return nil, d.t.HasQueues("queue")
}

func (d noQueues) Queues(context.Context) ([]string, error) { return nil, d.t.HasQueues("queue") }

// noRecords is the same without records.
type noRecords struct{ t Target }

func (d noRecords) Store(context.Context) (driver.Store, error) { return nil, d.t.HasRecords() }

// CheckStore refuses a URL that can be no store, before anything is opened.
func CheckStore(raw string) error {
	t, err := Parse("store", raw)
	if err != nil {
		return err
	}
	return t.HasRecords()
}

// ProvesQueue reports that a queue of the URL's kind that could be opened exists.
func ProvesQueue(raw string) bool {
	t, err := Parse("queue", raw)
	return err == nil && t.kind.namesQueue
}

func (s *Set) parseQueue(flag, raw string) (Target, error) {
	t, err := s.parse(flag, raw)
	if err != nil {
		return t, err
	}
	return t, t.NamesQueue(flag)
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

// at opens the place that a URL names.
func (s *Set) at(ctx context.Context, flag, raw string) (t Target, db Database, err error) {
	if t, err = s.parse(flag, raw); err == nil {
		db, err = s.dbWith(ctx, t, s.o)
	}
	return t, db, err
}

func (s *Set) dbWith(ctx context.Context, t Target, o Options) (Database, error) {
	if db := s.dbs[t.place]; db != nil {
		return db, nil
	}
	db, err := t.kind.open(ctx, t, o)
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

// Schema is what makes the schema in an empty database of the URL's kind: SQL, or the JSON of a request.
func Schema(raw string) (text, language string, err error) {
	t, err := withSchema(raw)
	if err != nil {
		return "", "", err
	}
	language = "sql"
	if t.aws != nil {
		language = "json"
	}
	text, err = t.kind.schema(t)
	return text, language, err
}

func withSchema(raw string) (Target, error) {
	t, err := Parse("store", raw)
	if err == nil && t.kind.migrate == nil {
		err = output.Usage("--store %s:// has no schema", t.Scheme).WithHint("--store 'sqlite:orders.db'")
	}
	return t, err
}

// AWS finds out with which region, endpoint and credentials a URL of AWS is opened, for those who make and remove queues and
// tables. It asks no service but those that give credentials. An error is of usage or unreachable.
func AWS(ctx context.Context, flag, raw string) (aws.Config, error) {
	t, err := Parse(flag, raw)
	if err != nil {
		return aws.Config{}, err
	}
	if t.aws == nil {
		return aws.Config{}, output.Usage("--%s %s is not on AWS", flag, t.Shown).WithHint("--%s '%s'", flag, sqsForm)
	}
	return t.aws.load(ctx, t)
}

// Explain adds the place to an error of a database or service, never a password. doing is a verb ("make a queue in").
func Explain(flag, raw, doing string, err error) error {
	t, perr := Parse(flag, raw)
	if err == nil || perr != nil {
		return err
	}
	return t.explain(doing, err)
}

// MissingQueue reports that SQS knows no queue of that name.
func MissingQueue(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (codeOf(api) == "QueueDoesNotExist" || codeOf(api) == "NonExistentQueue")
}

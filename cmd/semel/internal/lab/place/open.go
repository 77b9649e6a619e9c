package place

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/driver"
)

const (
	// localInterval, fakeInterval and remoteInterval are how often a parent looks at a database, at a fake, and at a service
	// that bills requests.
	localInterval  = 20 * time.Millisecond
	fakeInterval   = 50 * time.Millisecond
	remoteInterval = 300 * time.Millisecond
	// farQuiet is how long SQS has to say that a queue is empty: its counts lag behind.
	farQuiet = 5 * time.Second
)

// Open opens the place of a run, with a queue of this visibility. It makes the ledger where there is none.
func Open(ctx context.Context, p URLs, visibility time.Duration) (*Place, error) {
	queue, err := open.Parse("queue", p.Queue)
	if err != nil {
		return nil, err
	}
	store, err := open.Parse("store", p.Store)
	if err != nil {
		return nil, err
	}
	o := opening{urls: p, visibility: visibility, place: &Place{PollInterval: localInterval}, set: open.New(open.Options{})}
	o.place.closers = append(o.place.closers, o.set.Close)
	q, err := o.queue(ctx, queue)
	if err == nil {
		err = o.store(ctx, store)
	}
	if err == nil {
		o.place.Queue, err = withDeadLetters(q, o.place.Store)
	}
	if err != nil {
		return nil, errors.Join(err, o.place.Close())
	}
	return o.place, nil
}

// opening is a place that is being opened.
type opening struct {
	urls       URLs
	visibility time.Duration
	place      *Place
	// opened is the SQL database of the queue, and at where it is: the store joins it when it is there, too.
	opened *database
	at     string
	set    *open.Set // of what joins by itself
}

func (o *opening) queue(ctx context.Context, t open.Target) (driver.Queue, error) {
	switch t.Scheme {
	case "sqs":
		return o.sqs(ctx)
	case "amqp":
		o.place.Quiet = farQuiet
		fallthrough
	case "nats", "redis":
		return o.set.Queue(ctx, o.urls.Queue)
	}
	db, err := o.database(ctx, "queue", o.urls.Queue, t)
	if err != nil {
		return nil, err
	}
	return db.queue(t.QueueName()), nil
}

func (o *opening) store(ctx context.Context, t open.Target) error {
	switch t.Scheme {
	case "dynamodb":
		return o.dynamodb(ctx)
	case "redis":
		return o.redis(ctx)
	}
	db, err := o.database(ctx, "store", o.urls.Store, t)
	if err != nil {
		return err
	}
	ledger, marks := sqlTable{db.sql, "lab_ledger", t.Scheme == "mysql"}, sqlTable{db.sql, "lab_marks", t.Scheme == "mysql"}
	o.place.Store, o.place.Outbox = db.store, db.queue(OutboxName)
	o.place.tables(ledger, marks)
	return errors.Join(ledger.create(ctx), marks.create(ctx))
}

// database opens an SQL database, or returns the one that is open already.
func (o *opening) database(ctx context.Context, flag, raw string, t open.Target) (db *database, err error) {
	at := t.Path
	if t.Scheme != "sqlite" {
		if at, err = open.InSchema(raw, ""); err != nil {
			return nil, err
		}
	}
	if o.opened != nil && o.at == at {
		return o.opened, nil
	}
	switch t.Scheme {
	case "sqlite":
		db, err = openSQLite(ctx, at, o.visibility)
	case "mysql":
		db, err = openMySQL(ctx, at, o.visibility)
	default:
		db, err = openPostgres(ctx, at, o.visibility)
	}
	if err != nil {
		return nil, open.Explain(flag, raw, "open", err)
	}
	o.opened, o.at = db, at
	if t.Scheme == "sqlite" {
		o.place.files = append(o.place.files, db.sql)
	}
	o.place.closers = append(o.place.closers, db.close)
	return db, nil
}

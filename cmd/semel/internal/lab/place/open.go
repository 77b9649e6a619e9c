package place

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
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
	o := opening{urls: p, visibility: visibility, place: &Place{PollInterval: localInterval}}
	if err = o.queue(ctx, queue); err == nil {
		err = o.store(ctx, store)
	}
	if err == nil && o.rabbit != nil {
		err = o.keepDeadLetters()
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
	rabbit     *rabbitmq.Queue // nil: the queue is elsewhere
	// opened is the SQL database of the queue, and at where it is: the store joins it when it is there, too.
	opened *database
	at     string
	shared *open.Set
}

// set is the set of what joins by itself.
func (o *opening) set() *open.Set {
	if o.shared == nil {
		o.shared = open.New(open.Options{})
		o.place.closers = append(o.place.closers, o.shared.Close)
	}
	return o.shared
}

func (o *opening) queue(ctx context.Context, t open.Target) error {
	if t.Scheme == "sqs" {
		return o.sqs(ctx)
	}
	switch t.Scheme {
	case "nats":
		return o.nats(ctx)
	case "redis":
		return o.redisQueue(ctx)
	}
	if t.Scheme == "amqp" {
		return o.rabbitMQ(ctx)
	}
	db, err := o.database(ctx, "queue", o.urls.Queue, t)
	if err != nil {
		return err
	}
	o.place.Queue = db.queue(t.QueueName())
	return nil
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
	o.place.Store, o.place.Ledger, o.place.marks = db.store, sqlLedger{db.sql}, sqlMarks{db.sql}
	o.place.Outbox = db.queue(OutboxName)
	return makeTables(ctx, db)
}

// database opens an SQL database, or returns the one that is open already.
func (o *opening) database(ctx context.Context, flag, raw string, t open.Target) (*database, error) {
	at := t.Path
	openIt := func() (*database, error) { return openSQLite(ctx, t.Path, o.visibility) }
	switch t.Scheme {
	case "sqlite":
	case "postgres":
		conn, err := open.InSchema(raw, "")
		if err != nil {
			return nil, err
		}
		at = conn
		openIt = func() (*database, error) { return openPostgres(ctx, conn, o.visibility) }
	default:
		return nil, fmt.Errorf("--%s %s: the lab cannot run there", flag, t.Shown)
	}
	if o.opened != nil && o.at == at {
		return o.opened, nil
	}
	db, err := openIt()
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

package crew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"
	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

// Opened is a task's queue and records.
type Opened struct {
	Queue driver.Queue
	Store driver.Store

	postgres *postgres.DB // of the ledger; nil: it is on MySQL
	mysql    *mysql.DB
	closers  []func() error
}

// Close closes all of it.
func (o *Opened) Close() (err error) {
	for _, fn := range slices.Backward(o.closers) {
		err = errors.Join(err, fn())
	}
	return err
}

// Open opens queue and records. By Task.Kind:
//
//	""                     queue, records and ledger in PostgreSQL
//	mysql                  all of them in MySQL
//	redis                  queue (a stream) and records in the Redis at Task.At, the ledger in PostgreSQL
//	kafka, nats, rabbitmq  the queue at Task.At, records, dead letters and ledger in PostgreSQL
func (t Task) Open(ctx context.Context) (*Opened, error) {
	o := &Opened{}
	err := t.open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (t Task) open(ctx context.Context, o *Opened) (err error) {
	if t.Kind == "mysql" {
		o.mysql, err = mysql.Open(ctx, t.URL, mysql.Options{Visibility: t.Visibility, LockWait: t.LockWait, MaxTx: t.MaxTx})
		if err != nil {
			return err
		}
		o.Queue, o.Store, o.closers = o.mysql.Queue(t.Queue), o.mysql.Store(), append(o.closers, o.mysql.Close)
		return nil
	}
	o.postgres, err = postgres.Open(ctx, t.URL, postgres.Options{Visibility: t.Visibility, LockWait: t.LockWait, MaxTx: t.MaxTx})
	if err != nil {
		return err
	}
	o.Queue, o.Store, o.closers = o.postgres.Queue(t.Queue), o.postgres.Store(), append(o.closers, o.postgres.Close)
	switch t.Kind {
	case "":
		return nil
	case "redis":
		client := t.redis()
		o.closers = append(o.closers, client.Close)
		store, err := redis.Open(ctx, client, redis.Options{})
		if err != nil {
			return err
		}
		o.Store = store
		o.Queue, err = store.Queue(ctx, t.Queue)
		return err
	}
	q, leave, err := t.broker(ctx)
	if err != nil {
		return err
	}
	o.Queue, o.closers = deadletter.With(q, o.postgres.Store().DeadLetterQueue(t.Queue)), append(o.closers, leave)
	return nil
}

// broker opens a queue that is not in a store.
func (t Task) broker(ctx context.Context) (q driver.Queue, leave func() error, err error) {
	switch t.Kind {
	case "kafka":
		k, err := kafka.Open(ctx, t.Queue, t.kafka())
		if err != nil {
			return nil, nil, err
		}
		return k, k.Close, nil
	case "rabbitmq":
		r, err := rabbitmq.Open(ctx, t.dial, t.Queue, rabbitmq.Options{Wait: time.Second, Logger: silent})
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	case "nats":
		nc, err := t.nats()
		if err != nil {
			return nil, nil, err
		}
		n, err := nats.Open(ctx, nc, t.Queue, nats.Options{Wait: time.Second, Logger: silent})
		if err != nil {
			nc.Close()
			return nil, nil, err
		}
		return n, func() error { nc.Close(); return nil }, nil
	}
	return nil, nil, fmt.Errorf("there is no queue of kind %q", t.Kind)
}

var silent = slog.New(slog.DiscardHandler)

func (t Task) redis() *goredis.Client {
	u, _ := url.Parse(t.At) // of a server that this test started
	return goredis.NewClient(&goredis.Options{Addr: u.Host, ContextTimeoutEnabled: true})
}

func (t Task) kafka() kafka.Options {
	return kafka.Options{Client: kfake.Client([]string{t.At}), Logger: silent}
}

func (t Task) dial() (*amqp.Connection, error) { return amqp.Dial(t.At) }

func (t Task) nats() (*natsgo.Conn, error) {
	return natsgo.Connect(t.At, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond))
}

// Prepare makes the tables of semel and of the test on PostgreSQL, in a new database.
func Prepare(ctx context.Context, url string) error { return (&Task{URL: url}).Prepare(ctx) }

// Prepare makes queue and tables on new servers. On MySQL it changes URL to that of a new database.
func (t *Task) Prepare(ctx context.Context) error {
	if t.Kind == "mysql" {
		return t.prepareMySQL(ctx)
	}
	db, err := postgres.Open(ctx, t.URL, postgres.Options{Create: true})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if _, err := server.SQL(ctx, t.URL, sqlTables); err != nil {
		return err
	}
	switch t.Kind {
	case "kafka":
		return kafka.Create(ctx, t.Queue, kafka.CreateOptions{Options: t.kafka(), Partitions: 8})
	case "rabbitmq":
		return rabbitmq.Create(ctx, t.dial, t.Queue, rabbitmq.CreateOptions{})
	case "nats":
		nc, err := t.nats()
		if err != nil {
			return err
		}
		defer nc.Close()
		return nats.Create(ctx, nc, t.Queue, nats.CreateOptions{Visibility: t.Visibility})
	case "redis":
		client := t.redis()
		defer client.Close()
		store, err := redis.Open(ctx, client, redis.Options{})
		if err != nil {
			return err
		}
		return store.CreateQueue(ctx, t.Queue, t.Visibility)
	}
	return nil
}

func (t *Task) prepareMySQL(ctx context.Context) error {
	pool, err := mysqltest.Connect(t.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := execAll(ctx, pool, "CREATE DATABASE campaign", mysqlLedger); err != nil {
		return err
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return err
	}
	u.Path = "/campaign"
	t.URL = u.String()
	db, err := mysql.Open(ctx, t.URL, mysql.Options{Create: true})
	if err != nil {
		return err
	}
	return db.Close()
}

func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// DB is one database with queues and a record store. All methods may be called concurrently.
type DB struct {
	o     Options
	name  string // host and database, for people: no credentials
	pool  *sql.DB
	facts Facts
	// clock is SQL for the time in microseconds since 1970, at which it is evaluated, and stamp for that of the statement.
	clock, stamp string

	last   atomic.Int64 // the greatest token that this process drew
	floor  atomic.Int64 // the greatest token of a purged record, as far as is known
	seen   atomic.Int64 // the latest time that a receiver read
	body   atomic.Int64 // the average body of the latest delivery
	queues sync.Map     // names of queues that exist

	waiters rowqueue.Waiters
	closing chan struct{}
	closed  sync.Once
}

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Create makes semel's tables in a database that has none. Defaults to false: Open returns a *[SchemaError].
	Create bool
	// ReadOnly opens for inspection, also on a replica: nothing is written. Defaults to false.
	ReadOnly bool
	// Visibility is how long Receive keeps a message from others. Defaults to 30 s.
	Visibility time.Duration
	// MaxConns bounds the connections. Defaults to 16.
	MaxConns int
	// PollInterval is how often a blocked Receive looks for messages of other processes, after some looks at a tenth of it.
	// Defaults to 200 ms.
	PollInterval time.Duration
	// LockWait is how long a statement waits for a lock of another session, in whole seconds. A claim then returns Busy, and a
	// message whose effect had to wait is deferred. Defaults to 1 s.
	LockWait time.Duration
	// MaxTx is how long a synchronous transaction (modes B and C) may be idle, in whole seconds. The server then ends the
	// session, so that a frozen worker does not keep its keys locked. Defaults to 30 s.
	MaxTx time.Duration
	// ReceiveBytes bounds the bodies of one Receive, which always returns at least one message. Defaults to 64 MiB.
	ReceiveBytes int64

	clock string // tests: SQL that reads the time
}

// serverClock is SQL for the time at which it is evaluated. NOW is the time at which the statement began.
const serverClock = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"

func (o Options) withDefaults() (Options, error) {
	err := rowstore.SetDefaults("mysql",
		rowstore.Default{Name: "Visibility", Value: &o.Visibility, Default: 30 * time.Second},
		rowstore.Default{Name: "PollInterval", Value: &o.PollInterval, Default: 200 * time.Millisecond},
		rowstore.Default{Name: "LockWait", Value: &o.LockWait, Default: time.Second},
		rowstore.Default{Name: "MaxTx", Value: &o.MaxTx, Default: 30 * time.Second})
	if err == nil && (o.MaxConns < 0 || o.ReceiveBytes < 0) {
		err = errors.New("mysql: Options.MaxConns and ReceiveBytes must not be negative")
	}
	o.MaxConns, o.ReceiveBytes = cmp.Or(o.MaxConns, 16), cmp.Or(o.ReceiveBytes, 64<<20)
	o.clock = cmp.Or(o.clock, serverClock)
	return o, err
}

// Open connects to the database of a URL, mysql://user:password@host:port/database. Its parameter tls is true, false
// (the default), preferred or skip-verify. An unusable server, a missing database and a schema that this program does not work
// with (*[SchemaError]) are errors of Open.
func Open(ctx context.Context, address string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	db, have, err := connect(ctx, address, o)
	if err != nil {
		return nil, err
	}
	if have == 0 && o.Create && !o.ReadOnly {
		_, have, err = db.migrate(ctx)
	}
	if err == nil && have != schemaVersion {
		err = schemaError(db.name, have)
	}
	if err == nil {
		db.facts, err = db.inspect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connect opens the pool and reads the version of the schema.
func connect(ctx context.Context, address string, o Options) (*DB, int, error) {
	cfg, err := ParseURL(address)
	if err != nil {
		return nil, 0, err
	}
	base, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, 0, fmt.Errorf("open database %s: %w", shown(cfg), err)
	}
	db := &DB{
		o: o, name: shown(cfg), clock: o.clock, stamp: strings.Replace(o.clock, "SYSDATE(6)", "NOW(6)", 1), closing: make(chan struct{}),
		pool: sql.OpenDB(&connector{Connector: base, setup: setup(o, cfg.DBName)}),
	}
	db.pool.SetMaxOpenConns(o.MaxConns)
	db.pool.SetMaxIdleConns(o.MaxConns)
	db.pool.SetConnMaxIdleTime(o.MaxTx / 2)
	version := ""
	err = db.pool.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	if err == nil {
		err = checkVersion(version)
	}
	have := 0
	if err == nil {
		have, err = schemaOf(ctx, db.pool)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open database %s: %w", db.name, explain(err)), db.Close())
	}
	return db, have, nil
}

// ParseURL returns the client library's configuration for a connection URL, with the settings that this package needs. Its
// errors show no password.
func ParseURL(address string) (*mysqldriver.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("open database: the URL cannot be read; want mysql://user:password@host:3306/database") // no password in errors
	}
	name := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme != "mysql":
		return nil, fmt.Errorf("open database: the URL has scheme %q, want mysql://user:password@host:3306/database", u.Scheme)
	case name == "" || strings.Contains(name, "/"):
		return nil, fmt.Errorf("open database mysql://%s: the path must be the name of a database, as in mysql://host:3306/shop", u.Host)
	case u.Fragment != "":
		return nil, fmt.Errorf("open database mysql://%s: %q behind # is not used; write %%23 in a password", u.Host, u.Fragment)
	}
	cfg := mysqldriver.NewConfig()
	cfg.User, cfg.DBName, cfg.Net = u.User.Username(), name, "tcp"
	cfg.Passwd, _ = u.User.Password()
	cfg.Addr = net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306"))
	cfg.Timeout, cfg.MaxAllowedPacket = 10*time.Second, 0 // the server's
	cfg.ClientFoundRows, cfg.InterpolateParams, cfg.ParseTime = true, true, true
	cfg.Logger = &mysqldriver.NopLogger{} // errors are returned
	for k, v := range u.Query() {
		if k != "tls" {
			return nil, fmt.Errorf("open database %s: parameter %q is unknown, want tls", shown(cfg), k)
		}
		if cfg.TLSConfig = v[0]; len(v) > 1 || !slices.Contains([]string{"true", "false", "preferred", "skip-verify"}, v[0]) {
			return nil, fmt.Errorf("open database %s: tls is %q, want true, false, preferred or skip-verify", shown(cfg), strings.Join(v, ","))
		}
	}
	return cfg, nil
}

// shown is host and database, for people.
func shown(cfg *mysqldriver.Config) string { return "mysql://" + cfg.Addr + "/" + cfg.DBName }

// checkVersion refuses servers without SKIP LOCKED.
func checkVersion(version string) error {
	major, minor, patch := 0, 0, 0
	_, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	least, oldest := 8_000_001, "MySQL 8.0.1"
	if strings.Contains(strings.ToLower(version), "mariadb") {
		least, oldest = 10_006_000, "MariaDB 10.6"
	}
	if err != nil || major*1_000_000+minor*1000+patch < least {
		return fmt.Errorf("the server is %s; semel needs %s or newer, for SKIP LOCKED", version, oldest)
	}
	return nil
}

// Close closes the connections. Calls in progress end first. It may be called twice.
func (db *DB) Close() (err error) {
	db.closed.Do(func() {
		close(db.closing)
		err = rowstore.Wrap(db.pool.Close(), "close database %s", db.name)
	})
	return err
}

// SQL is the pool of connections, for the application's own tables and for tests. Its sessions run at READ COMMITTED, with
// strict SQL mode, in UTC.
func (db *DB) SQL() *sql.DB { return db.pool }

// Queues lists the names of the queues that were ever sent to, sorted.
func (db *DB) Queues(ctx context.Context) ([]string, error) { return rowqueue.List(ctx, rows{db}) }

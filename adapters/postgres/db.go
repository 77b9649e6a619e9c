package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// minVersion is the oldest server: sweeps read ranges of pages (PostgreSQL 14).
const minVersion = 140000

const defaultMaxConns = 16

// DB is one PostgreSQL database with queues and a record store. All methods may be called concurrently.
type DB struct {
	o    Options
	name string // host and database, for people: no credentials
	pool *pgxpool.Pool
	own  bool // Open made the pool, and Close closes it
	// std is the same connections for handlers that take a *sql.Tx.
	std  *sql.DB
	info serverInfo
	// history counts when the server may have forgotten something.
	history *history

	queues sync.Map // names of queues that there are
	wake   *waker

	// keep is the retention that transactions asked for last, in microseconds; 0 = unknown.
	keep atomic.Int64

	// apart serializes connections outside of the pool that create queues.
	apart sync.Mutex

	// blockedAt is when an effect last waited for a lock in vain, in nanoseconds since 1970.
	blockedAt atomic.Int64

	// claims and ends gather the calls of one item.
	claims *gather[driver.Claim, claimed]
	ends   *gather[driver.Finish, driver.Outcome]

	closing chan struct{}
	closed  sync.Once
}

// serverInfo is what Open found out about the server and the role's settings there.
type serverInfo struct {
	version                                int
	standby, readOnly                      bool
	syncCommit, fsync, fullPages, encoding string
	schema                                 int
	// place is the schema of semel's tables, quoted.
	place string
	// statementTimeout and lockTimeout are those of the role or the URL, 0 = none.
	statementTimeout, lockTimeout time.Duration
	// user is who the connection is, for the server.
	user string
	// names and values are settings of the session that are not its defaults, see sqlSession.
	names, values []string
	// plain: a single statement is a transaction at read committed and needs no BEGIN.
	plain bool
}

// Open connects to the database that conn names, a connection URL or keyword/value string of libpq's form, and checks it:
// an unusable server, a missing database, and a schema that this program does not work with (*[SchemaError]) are errors of
// Open. Credentials that the URL does not have come from libpq's places (PGPASSWORD, ~/.pgpass), or from
// [Options.Configure].
func Open(ctx context.Context, conn string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg, err := parse(conn, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", shown(cfg), err)
	}
	return open(ctx, pool, true, o)
}

// OpenPool is [Open] on a pool of the program. Close leaves the pool open; close the DB before the pool. Handlers that take
// connections of it must leave some: [Options.MaxConns] says how many a process needs.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, o Options) (*DB, error) {
	o, err := o.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case pool == nil:
		return nil, errors.New("postgres: OpenPool: pool is nil; Try: pgxpool.New")
	case o.MaxConns != 0 || o.Configure != nil:
		return nil, errors.New("postgres: OpenPool: Options.MaxConns and Configure are for Open, and the pool has its own " +
			"configuration; Try: set pgxpool.Config.MaxConns and its hooks")
	}
	if err := checkMode(pool.Config()); err != nil {
		return nil, fmt.Errorf("postgres: OpenPool: %w", err)
	}
	return open(ctx, pool, false, o)
}

func open(ctx context.Context, pool *pgxpool.Pool, own bool, o Options) (*DB, error) {
	db := &DB{
		o: o, name: shown(pool.Config()), pool: pool, own: own, history: &history{}, std: stdlib.OpenDBFromPool(pool),
		closing: make(chan struct{}),
	}
	if err := db.check(ctx); err != nil {
		if _, named := errors.AsType[*SchemaError](err); !named { // it names the database
			err = fmt.Errorf("open database %s: %w", db.name, explain(err))
		}
		return nil, errors.Join(err, db.Close())
	}
	store := db.Store()
	db.claims, db.ends = newGather(store.claimGathered), newGather(store.finish)
	db.wake = newWaker(db)
	return db, nil
}

// parse reads the URL. It never prints it, because it may hold a password.
func parse(conn string, o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(conn)
	if err != nil {
		return nil, fmt.Errorf("read the connection URL: %w", err) // pgx redacts the password
	}
	switch {
	case o.MaxConns > 0:
		cfg.MaxConns = int32(o.MaxConns)
	case !strings.Contains(conn, "pool_max_conns"):
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "semel"
	}
	if o.Configure != nil {
		o.Configure(cfg)
	}
	if err := checkMode(cfg); err != nil {
		return nil, fmt.Errorf("connection URL: %w", err)
	}
	return cfg, nil
}

// checkMode refuses the simple protocol.
func checkMode(cfg *pgxpool.Config) error {
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return errors.New("default_query_exec_mode=simple_protocol lets one statement carry several; " +
			"Try: exec, which poolers in transaction mode understand as well")
	}
	return nil
}

func shown(cfg *pgxpool.Config) string {
	return fmt.Sprintf("%s:%d/%s", cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Database)
}

// storeURL is the database as a URL for the commands, without password, with the schema of its tables.
func storeURL(cfg *pgxpool.Config) string {
	c := cfg.ConnConfig
	host := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Host: host, Path: "/" + c.Database}
	q := url.Values{}
	if strings.HasPrefix(c.Host, "/") { // the directory of a Unix socket
		u.Host = ""
		q.Set("host", c.Host)
		q.Set("port", strconv.Itoa(int(c.Port)))
	}
	if path := c.RuntimeParams["search_path"]; path != "" {
		q.Set("search_path", path)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// sqlLook asks for all that Open has to know of the server.
const sqlLook = `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
  current_setting('transaction_read_only') = 'on', current_setting('synchronous_commit'), current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('server_encoding'), to_regclass('semel_schema') IS NOT NULL,
  current_setting('default_transaction_isolation') = 'read committed',
  quote_ident(coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('semel_schema')), current_schema(), '')), current_user::text,
  (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'),
  (SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout')`

// check looks at the server and refuses what cannot work.
func (db *DB) check(ctx context.Context) error {
	i := &db.info
	there := false
	var statement, lock int64
	err := db.pool.QueryRow(ctx, sqlLook).Scan(&i.version, &i.standby, &i.readOnly, &i.syncCommit, &i.fsync,
		&i.fullPages, &i.encoding, &there, &i.plain, &i.place, &i.user, &statement, &lock)
	if err != nil {
		return err
	}
	i.statementTimeout, i.lockTimeout = time.Duration(statement)*time.Millisecond, time.Duration(lock)*time.Millisecond
	if err := db.pool.QueryRow(ctx, sqlSession).Scan(&i.names, &i.values); err != nil {
		return err
	}
	if i.version < minVersion {
		return fmt.Errorf("the server is PostgreSQL %d, semel needs %d or newer", i.version/10000, minVersion/10000)
	}
	if (i.standby || i.readOnly) && !db.o.ReadOnly {
		return errors.New("the server is read-only (a standby, or default_transaction_read_only); Try: the primary, or " +
			"target_session_attrs=read-write in the URL with several hosts")
	}
	if there {
		if i.schema, err = schemaOf(ctx, db.pool); err != nil {
			return err
		}
	}
	if i.schema == 0 && db.o.Create && !db.o.ReadOnly {
		if _, i.schema, err = migrate(ctx, db.pool); err != nil {
			return err
		}
	}
	if i.schema != schemaVersion {
		return schemaError(db.pool.Config(), i.schema)
	}
	return nil
}

// caveats lists settings of the server that weaken the guarantee. durable is false when a crash of the server can lose
// commits.
func (db *DB) caveats() (durable bool, list []string) {
	durable = true
	if db.info.fsync == "off" {
		durable = false
		list = append(list, "fsync is off: a crash of the server's machine can lose or damage everything")
	}
	if db.info.syncCommit == "off" {
		durable = false
		list = append(list, "synchronous_commit is off: a crash of the server can lose the last commits, and their effects, "+
			"although their messages were acknowledged")
	}
	if db.info.fullPages == "off" {
		list = append(list, "full_page_writes is off: a crash of the server's machine can damage pages")
	}
	return durable, list
}

// Close closes the connections that Open made, and the one of OpenPool that listens. It waits for those in use, and may be
// called twice.
func (db *DB) Close() error {
	var err error
	db.closed.Do(func() {
		close(db.closing)
		if db.wake != nil {
			db.wake.close()
		}
		err = db.std.Close()
		if db.own {
			db.pool.Close()
		}
	})
	return rowstore.Wrap(err, "close database %s", db.name)
}

// dial makes a connection outside of the pool, as the pool would make it: with its hooks.
func (db *DB) dial(ctx context.Context) (*pgx.Conn, error) {
	cfg := db.pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	c, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil || cfg.AfterConnect == nil {
		return c, err
	}
	if err := cfg.AfterConnect(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// Pool is the pool of connections, for the application's own tables and for tests.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// history numbers the periods in which the server loses nothing that it confirmed. What this process remembers of the
// server belongs to one of them.
//
// A server that fails over, is restored or crashes has another start time, and every role may ask for it, on managed
// servers and behind poolers too. It is asked for at the first use of each connection and by every Receive, because a
// pooler can keep our connections open while its own go to another server. A restart that lost nothing begins another
// history too, which only costs the memory.
type history struct {
	n       atomic.Uint64
	mu      sync.Mutex
	started time.Time // the server
}

const sqlStarted = "SELECT pg_postmaster_start_time()"

// prepared is the key under which a connection lists the histories that know it. The pool may be shared by several DBs.
const prepared = "github.com/semel-dev/semel/adapters/postgres"

// prepare makes a connection ready at its first use.
func (h *history) prepare(ctx context.Context, c *pgx.Conn) {
	data := c.PgConn().CustomData()
	known, _ := data[prepared].(map[*history]bool)
	if known[h] {
		return
	}
	if known == nil {
		known = map[*history]bool{}
		data[prepared] = known
	}
	known[h] = true
	registerArrays(c)
	var started time.Time
	if err := c.QueryRow(ctx, sqlStarted, pgx.QueryExecModeExec).Scan(&started); err == nil {
		h.heard(started)
	} else {
		h.change() // it does not tell; a connection that is broken shows it to whoever uses it
	}
}

// heard handles the start time of the server that has just responded.
func (h *history) heard(started time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started.Equal(started) {
		h.started = started
		h.change()
	}
}

// change begins another history.
func (h *history) change() { h.n.Add(1) }

func (h *history) now() uint64 { return h.n.Load() }

// History changes when the server may have forgotten what it confirmed. See [driver.Historian].
func (s *Store) History() uint64 { return s.db.history.now() }

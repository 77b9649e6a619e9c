package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite"

	"github.com/semel-dev/semel/driver/rowstore"

	"github.com/semel-dev/semel/driver/rowqueue"
)

// DB is one SQLite file with queues and a record store. All methods may be called concurrently.
type DB struct {
	path string
	o    Options
	now  func() time.Time

	// reader serves inspection and tests. txs has the one connection of synchronous transactions.
	reader *sql.DB
	txs    *sql.DB
	writer *session

	// lock is this process's turn to write. The writing goroutine and synchronous transactions take it in turn, so that
	// they do not poll for SQLite's lock against each other.
	lock chan struct{}

	mu      sync.Mutex
	pending []*op
	closed  bool
	kick    chan struct{} // there is something pending
	closing chan struct{}
	done    sync.WaitGroup

	watch    watcher
	log      checkpointer
	sweeping chan struct{}
	tx       txConn
}

// Open opens the database. It refuses, with a *[SchemaError], a file that does not exist, has no semel tables, or has a
// schema that this program does not work with. [Migrate] creates or updates the tables. [Options.Create] does so for a file
// that has none.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkPath(path, !o.Create || o.ReadOnly); err != nil {
		return nil, err
	}
	have, err := schemaOf(ctx, path, o)
	if err != nil {
		return nil, explain(path, err)
	}
	if have == 0 && o.Create && !o.ReadOnly {
		if _, have, err = Migrate(ctx, path); err != nil {
			return nil, err
		}
	}
	if have != schemaVersion {
		return nil, schemaError(path, have, false)
	}
	db := &DB{
		path: path, o: o, now: o.clock, lock: make(chan struct{}, 1), kick: make(chan struct{}, 1), closing: make(chan struct{}),
		sweeping: make(chan struct{}, 1),
	}
	if err := db.connect(ctx); err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return db, nil
}

func (db *DB) connect(ctx context.Context) error {
	pool, err := sqlite3.NewConnector(dsn(db.path, db.o, readPragmas(db.o)))
	if err != nil {
		return err
	}
	db.reader = sql.OpenDB(pool)
	if err := db.reader.PingContext(ctx); err != nil {
		return err
	}
	watched, err := connect(ctx, db.path, db.o, readPragmas(db.o))
	if err != nil {
		return err
	}
	db.watch.init(db, watched)
	if db.o.ReadOnly {
		return nil
	}
	if db.tx.guard, err = newGuard(); err != nil {
		return err
	}
	tx, err := sqlite3.NewConnector(db.tx.guard.dsn(dsn(db.path, db.o, writePragmas(db.o)) + "&_txlock=immediate"))
	if err != nil {
		return err
	}
	db.txs = sql.OpenDB(tx)
	if db.writer, err = connectGuarded(ctx, db.path, db.o); err != nil {
		return err
	}
	own, err := connect(ctx, db.path, db.o, writePragmas(db.o))
	if err != nil {
		return err
	}
	db.log.init(db, own)
	db.done.Add(3)
	go db.writeLoop()
	go db.watch.loop()
	go db.log.loop()
	return nil
}

// Close waits for the current write, refuses what is queued and closes the connections. It may be called twice.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	close(db.closing)
	db.mu.Unlock()
	db.done.Wait()
	db.refuse(ErrClosed)
	db.lock <- struct{}{} // waits for a synchronous transaction, MaxTx at most; nobody writes any more
	var errs []error
	errs = append(errs, db.watch.close(), db.log.close(), db.tx.close())
	if db.writer != nil {
		errs = append(errs, db.writer.close())
	}
	for _, p := range []*sql.DB{db.txs, db.reader} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	db.tx.guard.close()
	err := errors.Join(errs...)
	return rowstore.Wrap(err, "close database %s", db.path)
}

// SQL is a pool of connections to the file, for reading, for the application's own tables and for tests. Keep transactions
// that write short: they compete with the adapter for SQLite's one lock.
func (db *DB) SQL() *sql.DB { return db.reader }

// Queues lists the names of the queues that were ever sent to, sorted.
func (db *DB) Queues(ctx context.Context) ([]string, error) { return rowqueue.List(ctx, rows{db}) }

func checkPath(path string, mustExist bool) error {
	if path == "" {
		return errors.New("open database: the path is empty")
	}
	if path == ":memory:" || strings.HasPrefix(path, "file:") {
		return fmt.Errorf("open database %s: want the path of a file (package memory keeps things in memory)", path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("open database %s: it is a directory", path)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open database: %w", err)
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("open database %s: directory %s: %w", path, dir, fs.ErrNotExist)
	}
	if mustExist {
		return schemaError(path, 0, true)
	}
	return nil
}

// connect opens one connection below database/sql.
func connect(ctx context.Context, path string, o Options, pragmas []string) (*session, error) {
	return openSession(ctx, dsn(path, o, pragmas), o.BusyTimeout)
}

// openSession waits up to limit for a lock. Some pragmas read the file, which is locked as a whole while another process
// changes its journal mode, recovers its log, or is the last to close it.
func openSession(ctx context.Context, dsn string, limit time.Duration) (*session, error) {
	c, err := sqlite3.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	var s *session
	err = patiently(ctx, limit, func() error {
		conn, err := c.Connect(ctx)
		if err == nil {
			s = newSession(conn)
		}
		return err
	})
	return s, err
}

// connectGuarded opens a connection for writing, on which handlers' statements are watched.
func connectGuarded(ctx context.Context, path string, o Options) (*session, error) {
	g, err := newGuard()
	if err != nil {
		return nil, err
	}
	s, err := openSession(ctx, g.dsn(dsn(path, o, writePragmas(o))), o.BusyTimeout)
	if err != nil {
		g.close()
		return nil, err
	}
	s.guard = g
	if err := g.check(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func dsn(path string, o Options, pragmas []string) string {
	mode := "rw"
	switch {
	case o.ReadOnly:
		mode = "ro"
	case o.Create:
		mode = "rwc"
	}
	// SQLite decodes %xx in the path of a URI.
	p := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path))
	if filepath.IsAbs(path) && !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x.db
	}
	q := url.Values{"mode": {mode}, "_pragma": pragmas, "_time_format": {"sqlite"}, "_error_rc": {"1"}}
	all := q.Encode()
	if o.modeOf != "" { // read by SQLite itself, to which + is no space
		all += "&modeof=" + strings.ReplaceAll(url.QueryEscape(o.modeOf), "+", "%20")
	}
	return "file:" + p + "?" + all
}

// readPragmas let a reader wait while another connection recovers or checkpoints.
func readPragmas(o Options) []string {
	return []string{"busy_timeout(" + strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10) + ")"}
}

// writePragmas sets no busy_timeout: SQLite's own waiting sleeps up to 100 ms between attempts and loses every race against
// a busy process. begin polls for the lock instead.
func writePragmas(o Options) []string {
	return []string{
		"busy_timeout(0)",
		"synchronous(FULL)",
		"wal_autocheckpoint(" + strconv.Itoa(checkpointLimit*o.Checkpoint) + ")",
		"cache_size(-" + strconv.FormatInt(max(o.CacheBytes>>10, 1), 10) + ")",
		"temp_store(MEMORY)",
	}
}

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Create makes the file, and semel's tables in a file that has none. Defaults to false: Open returns a *[SchemaError],
	// so that a typo in the path does not create another database.
	Create bool
	// ReadOnly opens for inspection: every write returns an error. The file must exist. Defaults to false.
	ReadOnly bool
	// Visibility is how long Receive keeps a message from others. Defaults to 30 s.
	Visibility time.Duration
	// BusyTimeout is how long a write waits for the lock that another process holds, before it returns
	// driver.ErrNotCommitted. On a very busy machine it waits up to ten times as long, until it made a fiftieth of its
	// usual attempts. Defaults to 10 s.
	BusyTimeout time.Duration
	// PollInterval is how often a blocked Receive looks for writes of other processes. Defaults to 3 ms.
	PollInterval time.Duration
	// MaxTx bounds a synchronous transaction, and the statements of handlers in one commit: they hold the only write lock,
	// and heartbeats of other processes wait for it. A longer transaction is rolled back. Defaults to 3 s.
	MaxTx time.Duration
	// ReceiveBytes bounds the bodies of one Receive, which always returns at least one message. Defaults to 64 MiB.
	ReceiveBytes int64
	// CacheBytes is the page cache of the writing connection. Defaults to 16 MiB: the operating system caches the rest, and
	// SQLite walks over the whole cache in many commits.
	CacheBytes int64
	// Checkpoint is the length of the write-ahead log, in pages, from which a goroutine carries it over into the database.
	// At twice this length a commit does it itself and waits. Defaults to 20,000 (80 MB), the least that keeps batched
	// writes fast.
	Checkpoint int

	clock  func() time.Time // tests; defaults to time.Now
	modeOf string           // a file whose mode a new database gets
}

func (o Options) withDefaults() (Options, error) {
	err := rowstore.SetDefaults("sqlite",
		rowstore.Default{Name: "Visibility", Value: &o.Visibility, Default: 30 * time.Second},
		rowstore.Default{Name: "BusyTimeout", Value: &o.BusyTimeout, Default: 10 * time.Second},
		rowstore.Default{Name: "PollInterval", Value: &o.PollInterval, Default: 3 * time.Millisecond},
		rowstore.Default{Name: "MaxTx", Value: &o.MaxTx, Default: 3 * time.Second})
	if err != nil {
		return o, err
	}
	if o.ReceiveBytes < 0 || o.CacheBytes < 0 || o.Checkpoint < 0 {
		return o, fmt.Errorf("sqlite: Options.ReceiveBytes, CacheBytes and Checkpoint must not be negative")
	}
	o.ReceiveBytes = cmp.Or(o.ReceiveBytes, 64<<20)
	o.CacheBytes = cmp.Or(o.CacheBytes, 16<<20)
	if o.clock == nil {
		o.clock = time.Now
	}
	o.Checkpoint = cmp.Or(o.Checkpoint, 20000)
	return o, nil
}

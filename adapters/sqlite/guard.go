package sqlite

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3lib "modernc.org/sqlite/lib"
)

// maxValue bounds a string, a blob and a row of handlers' SQL. SQLite's own bound is a gigabyte.
const maxValue = 64 << 20

// errTooLong reports SQL that exceeded its time.
var errTooLong = errors.New("it ran for longer than MaxTx and was interrupted, because it holds the only write lock; " +
	"Try: less work in one statement, an index, or a LIMIT")

// The modes of a guard: whose SQL is prepared and run.
const (
	modeOwn     int32 = iota // semel's: everything is allowed
	modeHandler              // a handler's, in a transaction that it has as *sql.Tx
	modeEffects              // a handler's statements, which are data
)

// guard watches the SQL of handlers on one connection, with SQLite's own means: its authorizer checks everything that a
// statement does, in views and triggers too, sqlite3_limit bounds the size of values, and sqlite3_interrupt ends what takes
// too long. The driver has no calls for these. It runs SQLite's automatic extensions on every connection that it opens, and
// a URI parameter identifies ours.
type guard struct {
	id   uintptr
	db   uintptr // sqlite3*
	tls  *libc.TLS
	mode atomic.Int32

	// denied is what the authorizer refused last.
	denied string

	mu    sync.Mutex
	timer *time.Timer
	run   uint64 // counts timers: one that was stopped does nothing any more
	over  bool   // the time has passed
}

// guardParam is the URI parameter that names the guard.
const guardParam = "semel_guard"

var (
	guards    sync.Map // id → *guard
	lastGuard atomic.Uintptr
	hookOnce  sync.Once
	errHook   error
)

// newGuard makes a guard for connections that are opened with its dsn.
func newGuard() (*guard, error) {
	hookOnce.Do(func() {
		tls := libc.NewTLS()
		defer tls.Close()
		if rc := sqlite3lib.Xsqlite3_auto_extension(tls, function(opened)); rc != sqlite3lib.SQLITE_OK {
			errHook = fmt.Errorf("watch connections: SQLite's code %d", rc)
		}
	})
	if errHook != nil {
		return nil, errHook
	}
	g := &guard{id: lastGuard.Add(1), tls: libc.NewTLS()}
	guards.Store(g.id, g)
	return g, nil
}

func (g *guard) dsn(dsn string) string {
	return dsn + "&" + guardParam + "=" + strconv.FormatUint(uint64(g.id), 10)
}

// check fails unless the guard watches a connection.
func (g *guard) check() error {
	if g.db == 0 {
		return errors.New("open a connection: SQLite did not take its authorizer")
	}
	return nil
}

func (g *guard) close() {
	if g == nil || g.tls == nil {
		return
	}
	guards.Delete(g.id)
	g.tls.Close()
	g.tls = nil
}

// function is the C pointer of a Go function that is declared at the top level (https://golang.org/s/go11func).
func function[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }

// opened is SQLite's automatic extension. It runs for each connection that this process opens.
func opened(tls *libc.TLS, db, _, _ uintptr) int32 {
	names, err := libc.CString("main\x00" + guardParam)
	if err != nil {
		return sqlite3lib.SQLITE_NOMEM
	}
	defer libc.Xfree(tls, names)
	file := sqlite3lib.Xsqlite3_db_filename(tls, db, names)
	if file == 0 {
		return sqlite3lib.SQLITE_OK
	}
	value := sqlite3lib.Xsqlite3_uri_parameter(tls, file, names+uintptr(len("main\x00")))
	if value == 0 {
		return sqlite3lib.SQLITE_OK // somebody else's connection
	}
	id, err := strconv.ParseUint(libc.GoString(value), 10, 64)
	if err != nil {
		return sqlite3lib.SQLITE_OK
	}
	if v, ok := guards.Load(uintptr(id)); ok {
		g := v.(*guard)
		g.db = db
		return sqlite3lib.Xsqlite3_set_authorizer(tls, db, function(authorize), g.id)
	}
	return sqlite3lib.SQLITE_OK
}

// authorize is SQLite's authorizer. SQLite calls it for everything that a statement does, when it is prepared.
func authorize(_ *libc.TLS, id uintptr, action int32, a, b, schema, _ uintptr) int32 {
	v, ok := guards.Load(id)
	if !ok {
		return sqlite3lib.SQLITE_OK
	}
	g := v.(*guard)
	mode := g.mode.Load()
	if mode == modeOwn {
		return sqlite3lib.SQLITE_OK
	}
	if what := refusal(mode, action, a, b, schema); what != "" {
		g.denied = what
		return sqlite3lib.SQLITE_DENY
	}
	return sqlite3lib.SQLITE_OK
}

// refusal returns why a handler's SQL must not do an action, or "". a, b and schema are the authorizer's arguments
// (https://www.sqlite.org/c3ref/c_alter_table.html).
func refusal(mode, action int32, a, b, schema uintptr) string {
	const temporary = "what is temporary stays with the connection, which other messages use; Try: a table of your own, or WITH"
	if changes[action] && strings.EqualFold(libc.GoString(schema), "temp") {
		return temporary
	}
	switch action {
	case sqlite3lib.SQLITE_INSERT, sqlite3lib.SQLITE_UPDATE, sqlite3lib.SQLITE_DELETE:
		if table := libc.GoString(a); own(table) {
			return "it writes to semel's own table " + table
		}
	case sqlite3lib.SQLITE_CREATE_TABLE, sqlite3lib.SQLITE_CREATE_VIEW, sqlite3lib.SQLITE_DROP_TABLE, sqlite3lib.SQLITE_DROP_VIEW,
		sqlite3lib.SQLITE_CREATE_VTABLE, sqlite3lib.SQLITE_DROP_VTABLE:
		if table := libc.GoString(a); own(table) {
			return "it makes or drops " + table + ": names that begin with semel_ are semel's own"
		}
	case sqlite3lib.SQLITE_CREATE_INDEX, sqlite3lib.SQLITE_CREATE_TRIGGER, sqlite3lib.SQLITE_DROP_INDEX,
		sqlite3lib.SQLITE_DROP_TRIGGER, sqlite3lib.SQLITE_ALTER_TABLE:
		if table := libc.GoString(b); own(table) || own(libc.GoString(a)) {
			return "it changes semel's own table " + table
		}
	case sqlite3lib.SQLITE_CREATE_TEMP_TABLE, sqlite3lib.SQLITE_CREATE_TEMP_INDEX, sqlite3lib.SQLITE_CREATE_TEMP_VIEW,
		sqlite3lib.SQLITE_CREATE_TEMP_TRIGGER, sqlite3lib.SQLITE_DROP_TEMP_TABLE, sqlite3lib.SQLITE_DROP_TEMP_INDEX,
		sqlite3lib.SQLITE_DROP_TEMP_VIEW, sqlite3lib.SQLITE_DROP_TEMP_TRIGGER:
		return temporary
	case sqlite3lib.SQLITE_ATTACH, sqlite3lib.SQLITE_DETACH:
		return "ATTACH and DETACH change the connection, which other messages use"
	case sqlite3lib.SQLITE_PRAGMA:
		if name := strings.ToLower(libc.GoString(a)); !readingPragmas[name] {
			return "PRAGMA " + name + " changes the connection, which other messages use"
		}
	case sqlite3lib.SQLITE_ANALYZE, sqlite3lib.SQLITE_REINDEX:
		return "ANALYZE and REINDEX hold the only write lock, for the whole file; Try: them outside of handlers"
	case sqlite3lib.SQLITE_FUNCTION:
		if strings.EqualFold(libc.GoString(b), "load_extension") {
			return "load_extension changes the connection, which other messages use"
		}
	case sqlite3lib.SQLITE_TRANSACTION, sqlite3lib.SQLITE_SAVEPOINT:
		if mode == modeEffects {
			return "the transaction is semel's, which commits it with the record"
		}
	}
	return ""
}

// changes are the actions that name a schema and write to it.
var changes = map[int32]bool{
	sqlite3lib.SQLITE_INSERT: true, sqlite3lib.SQLITE_UPDATE: true, sqlite3lib.SQLITE_DELETE: true,
	sqlite3lib.SQLITE_CREATE_TABLE: true, sqlite3lib.SQLITE_CREATE_VIEW: true, sqlite3lib.SQLITE_CREATE_INDEX: true,
	sqlite3lib.SQLITE_CREATE_TRIGGER: true, sqlite3lib.SQLITE_CREATE_VTABLE: true,
}

// readingPragmas only read the schema.
var readingPragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true, "index_info": true, "index_xinfo": true,
	"foreign_key_list": true, "database_list": true, "collation_list": true, "function_list": true,
}

func own(name string) bool { return len(name) >= 6 && strings.EqualFold(name[:6], "semel_") }

// lend marks the SQL that follows as a handler's, until take.
func (g *guard) lend(mode int32) {
	g.mode.Store(mode)
	sqlite3lib.Xsqlite3_limit(g.tls, g.db, sqlite3lib.SQLITE_LIMIT_LENGTH, maxValue)
}

// interruptAfter interrupts what runs after bound, until take. It does not wait for a statement.
func (g *guard) interruptAfter(bound time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run++
	g.over = false
	run := g.run
	g.timer = time.AfterFunc(bound, func() { g.expire(run) })
}

// expire interrupts again and again until take is called, because an interrupt between two statements has no effect.
func (g *guard) expire(run uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run != run || g.timer == nil {
		return
	}
	g.over = true
	g.interrupt()
	g.timer.Reset(10 * time.Millisecond)
}

// interrupt ends the statement that runs, if any.
func (g *guard) interrupt() {
	tls := libc.NewTLS() // the connection's may be in use
	defer tls.Close()
	sqlite3lib.Xsqlite3_interrupt(tls, g.db)
}

// take marks the SQL that follows as semel's, and reports whether the handler's SQL exceeded its time.
func (g *guard) take() (over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	over, g.over = g.over, false
	sqlite3lib.Xsqlite3_limit(g.tls, g.db, sqlite3lib.SQLITE_LIMIT_LENGTH, sqlite3lib.SQLITE_MAX_LENGTH)
	g.mode.Store(modeOwn)
	return over
}

// explain adds the reason to SQLite's refusals.
func (g *guard) explain(err error) error {
	switch code(err) {
	case sqlite3lib.SQLITE_AUTH:
		return fmt.Errorf("refused: %s: %w", g.denied, err)
	case sqlite3lib.SQLITE_TOOBIG:
		return fmt.Errorf("refused: a value or a row has more than %d MiB: %w", maxValue>>20, err)
	}
	return err
}

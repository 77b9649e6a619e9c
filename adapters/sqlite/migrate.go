package sqlite

import (
	"context"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver/rowstore"
)

//go:embed schema/0001.sql
var schema0001 string

// migrations are applied in order, each once; the first makes schema 1. A published one is never edited.
var migrations = []string{schema0001}

// schemaVersion is what this program works with.
var schemaVersion = len(migrations)

// migrateWait bounds how long Open and Migrate wait for another process that migrates or writes.
const migrateWait = 30 * time.Second

// SchemaSQL is the SQL that Migrate runs on an empty database.
func SchemaSQL() string { return strings.Join(migrations, "\n") }

// Migrate updates the schema of the file to the version of this program, and creates the file if needed. It only goes
// forward, in one transaction, may be repeated, and several processes may call it at once. The error is a *[SchemaError]
// when a newer semel made the file.
func Migrate(ctx context.Context, path string) (from, to int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrate: %w", explain(path, err))
		}
	}()
	o, err := Options{Create: true, BusyTimeout: migrateWait}.withDefaults()
	if err != nil {
		return 0, 0, err
	}
	if err := checkPath(path, false); err != nil {
		return 0, 0, err
	}
	var s *session
	err = patiently(ctx, migrateWait, func() (err error) { s, err = connectPrivate(ctx, path, o); return err })
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := patiently(ctx, migrateWait, func() error { return walMode(s) }); err != nil {
		return 0, 0, err
	}
	if err := patiently(ctx, migrateWait, func() error { _, err := s.exec("BEGIN IMMEDIATE"); return err }); err != nil {
		return 0, 0, err
	}
	if from, err = s.migrate(path); err != nil {
		_, rerr := s.exec("ROLLBACK")
		return from, from, errors.Join(err, rerr)
	}
	if _, err := s.exec("COMMIT"); err != nil {
		return from, from, err
	}
	return from, schemaVersion, nil
}

// connectPrivate opens a connection. It creates a missing file for its owner alone (0600), because bodies and results are
// in it. SQLite gives -wal and -shm the mode of the file. An existing file keeps its mode.
func connectPrivate(ctx context.Context, path string, o Options) (_ *session, err error) {
	if _, err := os.Stat(path); err == nil {
		return connect(ctx, path, o, writePragmas(o))
	}
	// SQLite copies the mode of a model file. Creating the database file here would need a descriptor, and closing that
	// would end the locks of others in this process that opened it meanwhile.
	model, err := os.CreateTemp(filepath.Dir(path), ".semel-mode-*")
	if err != nil {
		return connect(ctx, path, o, writePragmas(o)) // SQLite cannot make a file there either, and says why
	}
	defer func() { err = errors.Join(err, os.Remove(model.Name())) }()
	if err := model.Close(); err != nil {
		return nil, err
	}
	o.modeOf = model.Name()
	return connect(ctx, path, o, writePragmas(o))
}

// migrate runs inside a transaction and leaves it open.
func (s *session) migrate(path string) (from int, err error) {
	if from, err = s.schema(); err != nil {
		return from, err
	}
	if from > schemaVersion {
		return from, schemaError(path, from, false)
	}
	for v := from; v < schemaVersion; v++ {
		err := s.script(migrations[v])
		if err == nil {
			_, err = s.exec("UPDATE semel_state SET schema = ? WHERE one = 1", int64(v+1))
		}
		if err != nil {
			return from, fmt.Errorf("schema %d: %w", v+1, err)
		}
	}
	return from, nil
}

// script runs several statements.
func (s *session) script(sql string) error {
	e, ok := s.conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("driver connection %T cannot run scripts", s.conn)
	}
	_, err := e.ExecContext(background, sql, nil)
	return err
}

// schema reads the version of the schema; 0 = there are no semel tables.
func (s *session) schema() (int, error) {
	var there, version int64
	if _, err := s.one([]*int64{&there}, "SELECT count(*) FROM sqlite_master WHERE name = 'semel_state'"); err != nil {
		return 0, err
	}
	if there == 0 {
		return 0, nil
	}
	_, err := s.one([]*int64{&version}, "SELECT schema FROM semel_state WHERE one = 1")
	return int(version), err
}

// schemaOf looks at the file without making or changing it.
func schemaOf(ctx context.Context, path string, o Options) (have int, err error) {
	if err := checkPath(path, true); err != nil {
		if !o.Create || o.ReadOnly {
			return 0, err
		}
		return 0, nil
	}
	look := o
	look.Create = false // mode=rw: a file that vanished meanwhile is not made again
	s, err := connect(ctx, path, look, readPragmas(o))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	encoding := ""
	err = s.query(func(v rowstore.Row) error { encoding = v.Text(0); return nil }, "PRAGMA encoding")
	if err == nil && encoding != "UTF-8" {
		err = fmt.Errorf("database %s has encoding %s: keys are compared byte by byte, which needs UTF-8", path, encoding)
	}
	if err != nil {
		return 0, err
	}
	return s.schema()
}

// walMode switches the file to write-ahead logging; the mode stays in the file.
func walMode(s *session) error {
	mode := ""
	err := s.query(func(v rowstore.Row) error { mode = v.Text(0); return nil }, "PRAGMA journal_mode = WAL")
	if err == nil && mode != "wal" {
		err = fmt.Errorf("journal mode is %q: this file system cannot do write-ahead logging", mode)
	}
	return err
}

// lockPoll is the pause between two attempts to get SQLite's write lock. A busy process leaves it free for some tens of
// microseconds between its commits. Many short attempts soon find such a gap.
const lockPoll = 200 * time.Microsecond

// starved is the part of its attempts that a starved process must make. 10 s are at least 1,000 attempts: a process that
// runs every 50 ms makes 200, and others may hold the lock at each by chance.
const starved = 50

// patiently repeats try while another process holds a lock, until limit has passed or ctx is done. On a starved machine it
// goes on for up to ten times as long.
func patiently(ctx context.Context, limit time.Duration, try func() error) error {
	least := int(limit / lockPoll / starved)
	for began, n := time.Now(), 1; ; n++ {
		err := try()
		if err == nil || !busy(err) {
			return err
		}
		if took := time.Since(began); took > limit && n >= least || took > 10*limit {
			return err
		}
		if cerr := ctx.Err(); cerr != nil {
			return errors.Join(cerr, err)
		}
		time.Sleep(lockPoll)
	}
}

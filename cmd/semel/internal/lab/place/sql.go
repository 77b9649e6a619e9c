package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// database is an open SQL database.
type database struct {
	queue func(name string) Queue
	store Store
	sql   *sql.DB
	close func() error
}

// lockWait is how long a process of the lab waits for SQLite's write lock: on a busy machine others may have it often.
const lockWait = time.Minute

func openSQLite(ctx context.Context, path string, visibility time.Duration) (*database, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Create: true, Visibility: visibility, BusyTimeout: lockWait})
	if err != nil {
		return nil, err
	}
	return &database{func(name string) Queue { return db.Queue(name) }, db.Store(), db.SQL(), db.Close}, nil
}

// maxConns are enough for a worker of the lab: one committer, and the unguarded one's own transactions.
const maxConns = 8

func openPostgres(ctx context.Context, url string, visibility time.Duration) (*database, error) {
	db, err := postgres.Open(ctx, url, postgres.Options{Visibility: visibility, MaxConns: maxConns})
	if err != nil {
		return nil, err
	}
	std := stdlib.OpenDBFromPool(db.Pool())
	return &database{func(name string) Queue { return db.Queue(name) }, db.Store(), std, func() error {
		return errors.Join(std.Close(), closeSoon(db))
	}}, nil
}

func openMySQL(ctx context.Context, url string, visibility time.Duration) (*database, error) {
	db, err := mysql.Open(ctx, url, mysql.Options{Visibility: visibility, MaxConns: maxConns})
	if err != nil {
		return nil, err
	}
	return &database{func(name string) Queue { return db.Queue(name) }, db.Store(), db.SQL(), db.Close}, nil
}

// closeWait is how long closing waits for connections that are being cut off: one whose request was cancelled in the middle
// of a write over TLS is waited for by the client library for 15 s, for nothing.
const closeWait = 3 * time.Second

// closeSoon closes a database, or leaves what is left of it to the end of the process.
func closeSoon(db *postgres.DB) error {
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return nil
	}
}

// makeSQL makes a file, a schema of PostgreSQL or a database of MySQL, and returns its URL.
func (s *Setup) makeSQL(ctx context.Context, flag string, d side, run, dir string) (string, error) {
	switch {
	case d.scheme != "sqlite":
		return s.makeSchema(ctx, flag, d, run)
	case d.url == "":
		return File(filepath.Join(dir, DatabaseFile)).Store, nil
	}
	t, err := open.Parse(flag, d.url)
	if err != nil {
		return "", err
	}
	end := filepath.Ext(t.Path)
	raw := File(strings.TrimSuffix(t.Path, end) + ours + s.stem + "-" + run + end).Store
	s.made = append(s.made, made{flag, raw})
	return raw, nil
}

// schemas begins the names of schemas and databases of runs.
const schemas = "semel_lab_"

// makeSchema makes the schema or database of a run, with semel's tables in it.
func (s *Setup) makeSchema(ctx context.Context, flag string, d side, run string) (string, error) {
	name := schemas + s.stem + "_" + run
	if err := execute(ctx, flag, d.url, "SELECT 1"); err != nil { // what is not there need not be cleaned up
		return "", err
	}
	raw, err := open.InSchema(d.url, name)
	if err != nil {
		return "", err
	}
	s.made = append(s.made, made{flag, raw})
	// Two halves of a pair may be in one database.
	if err := execute(ctx, flag, d.url, "CREATE SCHEMA IF NOT EXISTS "+name); err != nil {
		return "", fmt.Errorf("make a schema for the run: %w", err)
	}
	_, _, _, err = open.Migrate(ctx, raw)
	return raw, err
}

func dropSchema(ctx context.Context, m made) error {
	before, query, _ := strings.Cut(m.raw, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("--%s is not a URL", m.flag)
	}
	name, cascade := q.Get("search_path"), " CASCADE"
	if strings.HasPrefix(before, "mysql:") {
		name, cascade = before[strings.LastIndexByte(before, '/')+1:], ""
	}
	if !strings.HasPrefix(name, schemas) || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("--%s: schema %q was not made by the lab: left alone", m.flag, name)
	}
	if err := execute(ctx, m.flag, m.raw, "DROP SCHEMA IF EXISTS "+name+cascade); err != nil {
		return fmt.Errorf("drop the schema %s: %w", name, err)
	}
	return nil
}

// execute carries out one statement on a connection of its own.
func execute(ctx context.Context, flag, raw, statement string) (err error) {
	url, err := open.InSchema(raw, "")
	if err != nil {
		return err
	}
	if strings.HasPrefix(url, "mysql:") {
		return executeMySQL(ctx, flag, url, statement)
	}
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return open.Explain(flag, raw, "open", err)
	}
	_, err = c.Exec(ctx, statement)
	return errors.Join(err, c.Close(ctx))
}

// executeMySQL needs no database: that of the URL may be missing.
func executeMySQL(ctx context.Context, flag, url, statement string) error {
	cfg, err := mysql.ParseURL(url)
	if err != nil {
		return err
	}
	cfg.DBName = ""
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	if _, err = db.ExecContext(ctx, statement); err != nil {
		err = open.Explain(flag, url, "use", err)
	}
	return errors.Join(err, db.Close())
}

// removeFile removes an SQLite file with those that SQLite puts next to it.
func removeFile(path string) error {
	var errs []error
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

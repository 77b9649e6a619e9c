package open

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

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

var sqliteKind = &kind{
	schemes: []string{"sqlite"}, form: "sqlite:orders.db?queue=orders", parse: parseSQLite, open: openSQLite, explain: sqliteError, sql: connectSQLite,
	migrate: func(ctx context.Context, t Target) (from, to int, err error) {
		if from, to, err = sqlite.Migrate(ctx, t.Path); err != nil {
			err = sqliteError(t, "open", err)
		}
		return from, to, err
	},
	schema: func(Target) (string, error) { return sqlite.SchemaSQL(), nil },
}

func parseSQLite(flag, raw string, t *Target) error {
	u, err := url.Parse(raw)
	if err != nil {
		return output.Usage("--%s %q is not a URL: %w", flag, Redact(raw), unquoted(err)).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if strings.Contains(raw, "#") {
		return output.Usage("--%s %q has a fragment (#…)", flag, Redact(raw)).WithHint("write # in a file name as %%23")
	}
	if err := t.onlyQueue(flag, u.RawQuery); err != nil {
		return err
	}
	path := u.Path
	switch {
	case u.Opaque != "":
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return output.Usage("--%s %q: %w", flag, Redact(raw), err)
		}
	case u.Host != "":
		return output.Usage("--%s %q: two slashes start a host name", flag, Redact(raw)).
			WithHint("sqlite:%s for a relative path, sqlite:///%s for an absolute one", u.Host+u.Path, u.Host+u.Path)
	}
	if path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return output.Usage("--%s %q names no file", flag, Redact(raw)).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if path == ":memory:" {
		return output.Usage("--%s %q: a database in memory is memory://", flag, Redact(raw))
	}
	t.Shown = path
	abs, err := filepath.Abs(path)
	if err != nil {
		return output.Usage("--%s %q: %w", flag, Redact(raw), err)
	}
	t.Path = abs
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		t.Path = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		t.Path = filepath.Join(dir, filepath.Base(abs))
	}
	t.place = "sqlite:" + t.Path
	return nil
}

// sqliteDB is sqlite.DB as a Database.
type sqliteDB struct {
	*sqlite.DB
	readOnly bool
}

func openSQLite(ctx context.Context, t Target, o Options) (Database, error) {
	so := sqlite.Options{Create: !o.MustExist, Visibility: o.Visibility, ReadOnly: o.ReadOnly && !writable(t.Path)}
	db, err := sqlite.Open(ctx, t.Path, so)
	if err != nil {
		return nil, sqliteError(t, "open", err)
	}
	return sqliteDB{db, so.ReadOnly}, nil
}

func (d sqliteDB) Queue(_ context.Context, name string, visible time.Duration) (driver.Queue, error) {
	if visible > 0 {
		return d.QueueWith(name, visible), nil
	}
	return d.DB.Queue(name), nil
}

func (d sqliteDB) Store(context.Context) (driver.Store, error) { return d.DB.Store(), nil }

// Examine tells what a worker would not survive.
func (d sqliteDB) Examine(context.Context, Options) ([]ops.Check, error) {
	if !d.readOnly {
		return nil, nil
	}
	return []ops.Check{fact(ops.LevelDanger, "permissions", "chmod u+w, or run as the user that the file belongs to",
		"this user cannot write to the file: no worker of this user can run")}, nil
}

// connectSQLite connects to a file that exists.
func connectSQLite(t Target, readOnly bool) (*sql.DB, error) {
	if _, err := os.Stat(t.Path); err != nil {
		return nil, sqliteError(t, "open", err)
	}
	params := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(5000)"}}
	if readOnly {
		params.Add("_pragma", "query_only(1)")
	}
	path := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(t.Path)
	db, err := sql.Open("sqlite", "file:"+path+"?"+params.Encode())
	if err != nil {
		return nil, sqliteError(t, "open", err)
	}
	return db, nil
}

// writable reports whether the file can be written by this process; it does not change it.
func writable(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

func sqliteError(t Target, doing string, err error) error {
	text, _ := output.Split(err)
	e := &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("%s %s: %s", doing, t.Shown, text), err}}
	var schema *sqlite.SchemaError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if t.Queue == "" {
			return e.WithHint("check the path (it is relative to the working directory); semel migrate --store 'sqlite:%s' makes the "+
				"database, in a directory that exists", t.Shown)
		}
		return e.WithHint("check the path (it is relative to the working directory); semel queue create makes a database " +
			"in a directory that exists")
	case errors.As(err, &schema) && schema.Have > schema.Want:
		return e.WithHint("a newer semel")
	case errors.As(err, &schema):
		return e.WithHint("semel migrate --store 'sqlite:%s'", t.Shown)
	case errors.Is(err, fs.ErrPermission):
		return e.WithHint("check the permissions of the file and of its directory, which SQLite writes to as well")
	}
	return e
}

// SQLite opens the file of a sqlite: URL or makes it, for those who keep tables of their own in it.
func SQLite(ctx context.Context, t Target) (*sqlite.DB, error) {
	db, err := sqlite.Open(ctx, t.Path, sqlite.Options{Create: true})
	if err != nil {
		return nil, sqliteError(t, "open", err)
	}
	return db, nil
}

package open

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var mysqlKind = &kind{
	schemes: []string{"mysql"}, form: mysqlForm, parse: parseMySQL, open: openMySQL, explain: mysqlError, sql: connectMySQL,
	migrate: func(ctx context.Context, t Target) (from, to int, err error) {
		if from, to, err = mysql.Migrate(ctx, *t.conn); err != nil {
			err = mysqlError(t, "open", err)
		}
		return from, to, err
	},
	schema: func(Target) (string, error) { return mysql.SchemaSQL(), nil },
}

const mysqlForm = "mysql://user@host:3306/database?queue=orders"

// parseMySQL reads a URL. The password is in it, or in MYSQL_PWD, as for the server's own clients.
func parseMySQL(flag, raw string, t *Target) error {
	form := func(why string) error {
		return output.Usage("--%s is not a URL of the form %s: %s", flag, mysqlForm, why).WithHint("--%s '%s'", flag, mysqlForm)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return form("it cannot be read; write / as %2F, ? as %3F, # as %23 and % as %25 in a password")
	case u.Opaque != "" || !strings.Contains(raw, "://"):
		return form("it has no // after the scheme")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return form("its query cannot be read: write % as %25 and & as %26")
	}
	if err := checkParams(flag, q, []string{"queue", "tls"}, "docs/cli.md lists the parameters of mysql:// URLs"); err != nil {
		return err
	}
	if err := t.setQueue(flag, q["queue"]); err != nil {
		return err
	}
	q.Del("queue")
	u.Scheme, u.RawQuery = "mysql", q.Encode()
	if _, given := u.User.Password(); !given {
		if password := os.Getenv("MYSQL_PWD"); password != "" {
			u.User = url.UserPassword(u.User.Username(), password)
		}
	}
	conn := u.String()
	cfg, err := mysql.ParseURL(conn)
	if err != nil {
		return form(repeated.ReplaceAllString(strings.TrimPrefix(err.Error(), "open database: "), ""))
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil || strings.ContainsAny(host, " @/\\") {
		return form("its host is no host")
	}
	shown := *u
	shown.Host = net.JoinHostPort(host, cmp.Or(port, "3306"))
	if shown.User = nil; cfg.User != "" {
		shown.User = url.User(cfg.User)
	}
	t.conn, t.Shown = &conn, shown.String()
	t.place = fmt.Sprintf("mysql %q %q %q", cfg.Addr, cfg.DBName, cfg.User)
	return nil
}

// mysqlDB is mysql.DB as a Database.
type mysqlDB struct {
	*mysql.DB
	t Target
}

func openMySQL(ctx context.Context, t Target, o Options) (Database, error) {
	mo := mysql.Options{ReadOnly: o.ReadOnly, Visibility: o.Visibility, MaxConns: max(leastPool, connectionsOf(o.Committers))}
	db, err := mysql.Open(ctx, *t.conn, mo)
	if err != nil {
		return nil, mysqlError(t, "open", err)
	}
	return mysqlDB{db, t}, nil
}

func (d mysqlDB) Queue(_ context.Context, name string, visible time.Duration) (driver.Queue, error) {
	return d.QueueWith(name, visible), nil
}

func (d mysqlDB) Store(context.Context) (driver.Store, error) { return d.DB.Store(), nil }

func connectMySQL(t Target, _ bool) (*sql.DB, error) {
	cfg, err := mysql.ParseURL(*t.conn)
	if err != nil {
		return nil, output.Usage("%s: %w", t.Shown, err)
	}
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, mysqlError(t, "open", err)
	}
	return sql.OpenDB(connector), nil
}

// mysqlError says why a database could not be used, and what to do about it.
func mysqlError(t Target, doing string, err error) error {
	var schema *mysql.SchemaError
	if errors.As(err, &schema) {
		return schemaOff(t, schema, "")
	}
	text, hint := output.Split(err)
	if dial := (*net.OpError)(nil); hint == "" && errors.As(err, &dial) {
		hint = "check that the server runs and listens there (mariadb-admin ping), and host and port of the URL"
	}
	return &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("%s %s: %s", doing, t.Shown, plain(text)), err}, Hint: hint}
}

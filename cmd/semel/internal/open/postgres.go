package open

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var postgresKind = &kind{
	schemes: []string{"postgres", "postgresql"}, parse: parsePostgres, open: openPostgres,
	migrate: func(ctx context.Context, t Target) (from, to int, err error) {
		if from, to, err = postgres.Migrate(ctx, *t.conn); err != nil {
			err = notMigrated(t, err)
		}
		return from, to, err
	},
	schema: func(Target) (string, error) { return postgres.SchemaSQL(), nil },
}

// postgresDB is postgres.DB as a Database.
type postgresDB struct {
	*postgres.DB
	t Target
}

func openPostgres(ctx context.Context, t Target, o Options) (Database, error) {
	po := postgres.Options{ReadOnly: o.ReadOnly, Visibility: o.Visibility}
	if p, err := splitPostgres(*t.conn); err == nil && !p.has("pool_max_conns") {
		po.MaxConns = max(leastPool, connectionsOf(o.Committers))
	}
	db, err := postgres.Open(ctx, *t.conn, po)
	if err != nil {
		return nil, unreachableServer(t, err)
	}
	return postgresDB{db, t}, nil
}

// leastPool is the bound of connections where neither the URL nor the number of committers asks for another.
const leastPool = 16

// connectionsOf is how many connections a worker may have open at once (postgres.Options.MaxConns).
func connectionsOf(committers int) int { return 2*max(committers, 1) + 4 }

func (d postgresDB) Queue(_ context.Context, name string, visible time.Duration) (driver.Queue, error) {
	return d.QueueWith(name, visible), nil
}

func (d postgresDB) Store(context.Context) (driver.Store, error) { return d.DB.Store(), nil }

// unreachableServer says why a database could not be opened, and what to do about it.
func unreachableServer(t Target, err error) error {
	var schema *postgres.SchemaError
	if errors.As(err, &schema) {
		return schemaOff(t, schema)
	}
	text, hint := output.Split(err)
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch {
		case server.Code == "42704", server.Code == "22023": // undefined object, invalid parameter value
			return output.Usage("%s: the server refuses a parameter of the URL: %s", t.Shown, server.Message).
				WithHint("docs/cli.md lists the parameters of postgres:// URLs; others are settings of the server")
		case server.Code == "08P01" && strings.Contains(server.Message, "startup parameter"):
			return output.Usage("%s: %s", t.Shown, server.Message).
				WithHint("behind a pooler, set it for the role (ALTER ROLE … SET …) instead of in the URL")
		}
	} else if hint == "" && isConnect(err) {
		hint = "check that the server runs and listens there (pg_isready), and host and port of the URL"
	}
	return &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("open %s: %s", t.Shown, plain(text)), err}, Hint: hint}
}

// notMigrated is unreachableServer for migrate, which needs more rights than a worker.
func notMigrated(t Target, err error) error {
	err = unreachableServer(t, err)
	if e := (*output.Error)(nil); errors.As(err, &e) && sqlState(err) == "42501" {
		e.Hint = "run it as the owner of the database, or GRANT CREATE, USAGE ON SCHEMA … to this role"
	}
	return err
}

func sqlState(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// repeated is what the adapter says before the cause: the place is named already.
var repeated = regexp.MustCompile(`^(open|migrate) database [^ ]+: `)

// plain is an error of the client library in one line. Under sslmode=prefer the library tries each address with TLS and
// without: an attempt with TLS that a server without TLS refused is not what is wrong, and what failed both times is said once.
func plain(text string) string {
	text = repeated.ReplaceAllString(text, "")
	head, tries, several := strings.Cut(text, ":\n\t")
	if !several {
		return text
	}
	kept := slices.DeleteFunc(strings.Split(tries, "\n\t"), func(try string) bool {
		return strings.HasSuffix(try, "tls error: server refused TLS connection")
	})
	var once []string
	for _, try := range kept {
		if !slices.Contains(once, try) {
			once = append(once, try)
		}
	}
	return head + ": " + strings.Join(once, "; ")
}

func isConnect(err error) bool {
	var c *pgconn.ConnectError
	return errors.As(err, &c)
}

func schemaOff(t Target, s *postgres.SchemaError) error {
	switch {
	case s.Have > s.Want:
		return output.Unreachable("open %s: it was made by a newer semel (schema %d, this program knows %d)", t.Shown, s.Have, s.Want).
			WithHint("a newer semel")
	case s.Have == 0:
		return output.Unreachable("open %s: it has no tables of semel in its search_path", t.Shown).
			WithHint("semel migrate --store '%s'", t.Shown)
	}
	return output.Unreachable("open %s: it has schema %d, this program needs %d", t.Shown, s.Have, s.Want).
		WithHint("semel migrate --store '%s'", t.Shown)
}

// worded is an error with words of its own.
type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

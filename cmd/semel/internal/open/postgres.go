package open

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

var postgresKind = &kind{
	schemes: []string{"postgres", "postgresql"}, form: postgresForm, parse: parsePostgres, open: openPostgres, explain: postgresError, sql: connectPostgres,
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
		return nil, postgresError(t, "open", err)
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

// connectPostgres connects with the session that the URL says.
func connectPostgres(t Target, _ bool) (*sql.DB, error) {
	cfg, err := pgxpool.ParseConfig(*t.conn) // a pool's, because the URL may have the parameters of one
	if err != nil {
		return nil, output.Usage("%s: %w", t.Shown, err)
	}
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

// postgresError says why a database could not be used, and what to do about it.
func postgresError(t Target, doing string, err error) error {
	var schema *postgres.SchemaError
	if errors.As(err, &schema) {
		return schemaOff(t, schema, " in its search_path")
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
	return &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("%s %s: %s", doing, t.Shown, plain(text)), err}, Hint: hint}
}

// notMigrated is unreachableServer for migrate, which needs more rights than a worker.
func notMigrated(t Target, err error) error {
	err = postgresError(t, "open", err)
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

// schemaOff is the error of a schema that does not fit. where is where its tables were looked for.
func schemaOff(t Target, s *rowstore.SchemaError, where string) error {
	switch {
	case s.Have > s.Want:
		return output.Unreachable("open %s: it was made by a newer semel (schema %d, this program knows %d)", t.Shown, s.Have, s.Want).
			WithHint("a newer semel")
	case s.Have == 0:
		return output.Unreachable("open %s: it has no tables of semel%s", t.Shown, where).
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

const postgresForm = "postgres://user@host:5432/database?queue=orders"

// postgresURL is a connection URL in its parts, still encoded. It is split here because net/url does not read several
// hosts, and because a password must be known to be left out. The rules are those of libpq
// (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS).
type postgresURL struct {
	user, password    string
	named, protected  bool // there is a user, there is a password
	hosts, database   string
	params, passwords []string // name=value; passwords are those of params that are secret
}

var (
	errUserinfo = errors.New("it is not clear where user and password end; " +
		"Try: write / ? # @ : of a user or password as %2F %3F %23 %40 %3A")
	hostList = regexp.MustCompile(`^([A-Za-z0-9_.%-]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?(,([A-Za-z0-9_.%-]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?)*$`)
)

// splitPostgres splits a URL. It refuses what is ambiguous, because a part of a password could be taken for a host; its
// errors show nothing of the URL.
func splitPostgres(raw string) (postgresURL, error) {
	var p postgresURL
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return p, errors.New("it has no // after the scheme; Try: " + postgresForm)
	}
	if strings.Contains(rest, "#") {
		return p, errUserinfo
	}
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		p.named = true
		p.user, p.password, p.protected = strings.Cut(rest[:i], ":")
		rest = rest[i+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	p.hosts, p.database, _ = strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "@") || strings.Contains(p.database, "/") || !hostList.MatchString(p.hosts) {
		return p, errUserinfo
	}
	for _, part := range strings.Split(query, "&") {
		if part == "" {
			continue
		}
		name, err := paramName(part)
		if err != nil {
			return p, errors.New("a % of its query is not followed by two hexadecimal digits")
		}
		if name == "password" || name == "sslpassword" {
			p.passwords = append(p.passwords, part)
		} else {
			p.params = append(p.params, part)
		}
	}
	for _, s := range []string{p.user, p.password, p.hosts, p.database, strings.Join(p.params, ""), strings.Join(p.passwords, "")} {
		if _, err := url.PathUnescape(s); err != nil {
			return p, errors.New("a % of it is not followed by two hexadecimal digits; Try: write % as %25")
		}
	}
	return p, nil
}

func paramName(part string) (string, error) {
	name, _, _ := strings.Cut(part, "=")
	return url.QueryUnescape(name)
}

// join puts the parts together again, with or without the passwords.
func (p postgresURL) join(passwords bool) string {
	var b strings.Builder
	b.WriteString("postgres://")
	if p.named {
		b.WriteString(p.user)
		if passwords && p.protected {
			b.WriteString(":" + p.password)
		}
		b.WriteString("@")
	}
	b.WriteString(p.hosts + "/" + p.database)
	all := p.params
	if passwords {
		all = slices.Concat(p.params, p.passwords)
	}
	if len(all) > 0 {
		b.WriteString("?" + strings.Join(all, "&"))
	}
	return b.String()
}

// take removes the parameters of that name and returns their values.
func (p *postgresURL) take(name string) (values []string) {
	p.params = slices.DeleteFunc(p.params, func(part string) bool {
		if n, err := paramName(part); err != nil || n != name {
			return false
		}
		_, v, _ := strings.Cut(part, "=")
		if u, err := url.QueryUnescape(v); err == nil {
			v = u
		}
		values = append(values, v)
		return true
	})
	return values
}

// has reports whether there is a parameter of that name.
func (p *postgresURL) has(name string) bool {
	return slices.ContainsFunc(p.params, func(part string) bool {
		n, err := paramName(part)
		return err == nil && n == name
	})
}

// postgresParams are the parameters that libpq, pgx and we know. Any other name is a setting of the server, which knows
// itself which there are; but one that nearly is one of these is a slip.
var postgresParams = []string{
	"queue",
	"host", "port", "dbname", "database", "user", "password", "passfile", "connect_timeout", "sslmode", "sslkey", "sslcert",
	"sslcertmode", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni", "krbspn", "krbsrvname", "target_session_attrs",
	"service", "servicefile", "min_protocol_version", "max_protocol_version", "channel_binding", "require_auth",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period",
	"search_path", "synchronous_commit", "application_name", "statement_timeout", "lock_timeout", "options", "role",
	"client_encoding", "timezone",
}

func parsePostgres(flag, raw string, t *Target) error {
	p, err := splitPostgres(raw)
	if err != nil {
		text, hint := output.Split(err)
		if hint == "" {
			hint = fmt.Sprintf("--%s '%s'", flag, postgresForm)
		}
		return output.Usage("--%s is not a URL of the form %s: %s", flag, postgresForm, text).WithHint("%s", hint)
	}
	if err := t.setQueue(flag, p.take("queue")); err != nil {
		return err
	}
	for _, part := range p.params {
		name, _ := paramName(part)
		if slices.Contains(postgresParams, name) {
			continue
		}
		if meant := nearest.Name(name, postgresParams, 3); meant != "" {
			return output.Usage("--%s: unknown query parameter %q (did you mean %s?)", flag, name, meant).
				WithHint("docs/cli.md lists the parameters of postgres:// URLs")
		}
	}
	t.Shown = p.join(false)
	cfg, err := pgxpool.ParseConfig(p.join(true))
	if err != nil {
		return output.Usage("--%s %s: %s", flag, t.Shown, p.explain(err)).WithHint("--%s '%s'", flag, postgresForm)
	}
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return output.Usage("--%s: default_query_exec_mode=simple_protocol lets one statement carry several", flag).
			WithHint("default_query_exec_mode=exec, which poolers in transaction mode understand as well")
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		p.params = append(p.params, "connect_timeout=10") // the system's own is minutes
	}
	conn := p.join(true)
	t.conn, t.place = &conn, placeOf(cfg)
	return nil
}

// explain is the client library's word on a URL, without the URL, which its errors quote.
func (p postgresURL) explain(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "`: "); i >= 0 {
		s = s[i+len("`: "):]
	}
	secrets := []string{p.password}
	for _, part := range p.passwords {
		_, v, _ := strings.Cut(part, "=")
		secrets = append(secrets, v)
	}
	for _, secret := range secrets {
		plain, _ := url.PathUnescape(secret)
		for _, form := range []string{secret, plain} {
			if form != "" {
				s = strings.ReplaceAll(s, form, "xxxxx")
			}
		}
	}
	return s
}

// placeOf identifies a database by address, role and session parameters: another search_path has other tables, another
// synchronous_commit another guarantee. The number of connections makes no difference: the first URL decides.
func placeOf(cfg *pgxpool.Config) string {
	c := cfg.ConnConfig
	at := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if h := fmt.Sprintf("%s:%d", f.Host, f.Port); !slices.Contains(at, h) {
			at = append(at, h)
		}
	}
	var params []string
	for name, value := range c.RuntimeParams {
		if name != "application_name" {
			params = append(params, name+"="+value)
		}
	}
	slices.Sort(params)
	return fmt.Sprintf("postgres:%q %q %q %q", at, c.Database, c.User, params)
}

// InSchema is the connection URL for the tables in a schema of the database that a postgres:// URL names, or in another
// database of the server of a mysql:// URL ("": as the URL says). It holds the password, if the URL has one: it is for
// connecting, not for showing.
func InSchema(raw, schema string) (string, error) {
	t, err := Parse("store", raw)
	if err != nil {
		return "", err
	}
	if t.kind == mysqlKind {
		u, err := url.Parse(*t.conn)
		if err == nil && schema != "" {
			u.Path = "/" + schema
		}
		return u.String(), err
	}
	if t.kind != postgresKind {
		return "", output.Usage("--store %s is no postgres:// URL", t.Shown).WithHint("--store '%s'", postgresForm)
	}
	p, err := splitPostgres(*t.conn)
	if err != nil || schema == "" {
		return *t.conn, err
	}
	p.take("search_path")
	p.params = append(p.params, "search_path="+url.QueryEscape(schema))
	return p.join(true), nil
}

package open

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/ops"
)

// server is what doctor reads of a PostgreSQL server.
type server struct {
	version, user, schema            string
	standby, readOnly                bool
	autovacuum                       string
	slots, reserved, used, roleLimit int
	statementTimeout                 time.Duration
	now                              time.Time
}

// sqlServer has no parameters. Connections for superusers are none that a worker can have; autovacuum's and other
// background processes do not count.
const sqlServer = `SELECT current_setting('server_version'), current_user::text, coalesce(current_schema()::text, ''),
  pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', current_setting('autovacuum'),
  current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int
    + coalesce(current_setting('reserved_connections', true)::int, 0),
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
  (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
  (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'), clock_timestamp()`

// sqlRights returns the rights that the role lacks on what semel migrate made, as "SELECT on semel_record". The names come from
// pg_class, in the schema that has semel_schema. Sequences of identity columns need no right of their own. The rights are those
// that docs/adapters.md grants.
const sqlRights = `WITH mine AS (
  SELECT c.oid, c.relname, c.relkind FROM pg_class c
  WHERE c.relname LIKE 'semel\_%' AND c.relkind IN ('r', 'S')
    AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('semel_schema'))
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i')
), lacks AS (
  SELECT p || ' on ' || relname AS what FROM mine, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
    WHERE relkind = 'r' AND NOT has_table_privilege(oid, p) AND (relname <> 'semel_schema' OR p = 'SELECT')
  UNION ALL SELECT p || ' on sequence ' || relname FROM mine, unnest(ARRAY['SELECT', 'USAGE']) p
    WHERE CASE relkind WHEN 'S' THEN NOT has_sequence_privilege(oid, p) ELSE false END
  UNION ALL SELECT 'EXECUTE on ' || oid::regprocedure FROM pg_proc
    WHERE proname LIKE 'semel\_%' AND pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('semel_schema'))
      AND NOT has_function_privilege(oid, 'EXECUTE')
) SELECT coalesce(string_agg(what, ', ' ORDER BY what), '') FROM lacks`

// Examine asks the server what a worker with these options meets.
func (d postgresDB) Examine(ctx context.Context, o Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	facts, err := d.examine(ctx, o)
	switch sqlState(err) {
	case "26000", "42P05": // a prepared statement is missing, or is there already
		return []ops.Check{fact(ops.LevelDanger, "pooler", "default_query_exec_mode=exec in the URL, or a pooler that follows prepared statements",
			"there is one in transaction mode, and prepared statements of one connection meet another's: a worker would fail")}, nil
	}
	return facts, err
}

func (d postgresDB) examine(ctx context.Context, o Options) ([]ops.Check, error) {
	c, err := d.Pool().Acquire(ctx)
	if err != nil {
		return nil, postgresError(d.t, "open", err)
	}
	defer c.Release()
	var s server
	var timeout int64
	asked := time.Now()
	err = c.QueryRow(ctx, sqlServer).Scan(&s.version, &s.user, &s.schema, &s.standby, &s.readOnly, &s.autovacuum, &s.slots,
		&s.reserved, &s.used, &s.roleLimit, &timeout, &s.now)
	took := time.Since(asked)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.t.Shown, err)
	}
	s.statementTimeout = time.Duration(timeout) * time.Millisecond
	var lacks string
	if err := c.QueryRow(ctx, sqlRights).Scan(&lacks); err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.t.Shown, err)
	}
	most := int(d.Pool().Config().MaxConns)
	pool, err := d.pooler(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.t.Shown, err)
	}
	f := Facts{s.role(), s.rights(lacks), s.connections(most, o.Committers), serverClock(s.now, asked, took), pool}
	f.When(s.autovacuum != "on", ops.LevelWarning, "autovacuum", "ALTER SYSTEM SET autovacuum = on",
		"autovacuum is off: the tables of queue and records grow, and the queue becomes slow")
	f.When(s.statementTimeout > 0 && s.statementTimeout < 10*time.Second, ops.LevelWarning, "timeouts", "ALTER ROLE "+s.user+" SET statement_timeout = '30s'",
		"statement_timeout is %v for this role: a batch that takes longer is rolled back, and sent again", s.statementTimeout)
	return f, nil
}

func (s server) role() ops.Check {
	switch {
	case s.standby:
		return fact(ops.LevelDanger, "server", "the primary; with several hosts in the URL target_session_attrs=read-write",
			"PostgreSQL %s, a standby: nothing can be written to it", s.version)
	case s.readOnly:
		return fact(ops.LevelDanger, "server", "another role, or default_transaction_read_only = off for this one",
			"PostgreSQL %s, but sessions of %s are read-only", s.version, s.user)
	}
	return fact(ops.LevelOK, "server", "", "PostgreSQL %s, a primary that can be written to", s.version)
}

func (s server) rights(lacks string) ops.Check {
	if lacks != "" {
		return fact(ops.LevelDanger, "rights", "the GRANT list of docs/adapters.md", "role %s lacks %s", s.user, lacks)
	}
	return fact(ops.LevelOK, "rights", "", "role %s may do what a worker does, in schema %s", s.user, s.schema)
}

// connections compares what this worker may open with what the server has left for it.
func (s server) connections(most, committers int) ops.Check {
	const check = "connections"
	need := connectionsOf(committers)
	left := s.slots - s.reserved - s.used
	busy := "its committer"
	if committers > 1 {
		busy = fmt.Sprintf("%d committers", committers)
	}
	detail := fmt.Sprintf("this worker opens up to %d, and needs %d to keep %s busy; the server has %d, %d in use", most, need, busy,
		s.slots, s.used)
	switch {
	case s.roleLimit >= 0 && s.roleLimit < need:
		return fact(ops.LevelDanger, check, fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d for each worker process", s.user, need),
			"role %s may open %d, and a worker needs %d", s.user, s.roleLimit, need)
	case left < need:
		return fact(ops.LevelDanger, check, "fewer --committers, a higher max_connections, or a pooler", "%s: that is not enough", detail)
	case most < need:
		return fact(ops.LevelWarning, check, fmt.Sprintf("pool_max_conns=%d in the URL", need), "%s", detail)
	case left < most:
		return fact(ops.LevelWarning, check, fmt.Sprintf("pool_max_conns=%d in the URL, or a higher max_connections", need),
			"%s: a busy worker would take the last ones", detail)
	}
	return fact(ops.LevelOK, check, "", "%s", detail)
}

// serverClock compares the clocks. The server's decides everything that matters; ours only plans heartbeats.
func serverClock(now, asked time.Time, took time.Duration) ops.Check {
	off := now.Sub(asked.Add(took / 2)).Round(time.Millisecond)
	f := fact(ops.LevelOK, "clock", "", "the server's clock decides about leases; it is %v off ours, and responds in %v", off, took.Round(100*time.Microsecond))
	if off.Abs() > time.Minute {
		f.Level, f.Try = ops.LevelWarning, "synchronise the clocks: times in logs and records do not fit together"
	}
	return f
}

// pooler finds out whether the connections end at the server itself, and if not, whether two transactions of one
// connection may run in different sessions. Two signs tell: the number of the session that the start of a connection
// announced is not the one that the server has for it; and a second connection gets the session that the first has let
// go between two transactions.
func (d postgresDB) pooler(ctx context.Context, c *pgxpool.Conn) (ops.Check, error) {
	var session uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&session); err != nil {
		return ops.Check{}, err
	}
	if session == c.Conn().PgConn().PID() {
		return fact(ops.LevelOK, "pooler", "", "none: the connections are sessions of the server"), nil
	}
	second, err := pgx.ConnectConfig(ctx, c.Conn().Config())
	if err != nil {
		return ops.Check{}, err
	}
	defer func() { _ = second.Close(context.WithoutCancel(ctx)) }()
	var other uint32
	if err := second.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&other); err != nil {
		return ops.Check{}, err
	}
	if other != session {
		return fact(ops.LevelOK, "pooler", "", "there is one, which seems to give each connection a session of its own (session mode): nothing is lost"), nil
	}
	f := fact(ops.LevelOK, "pooler", "", "there is one in transaction mode: notifications get lost, so that the queue is polled; the guarantee is the same")
	if c.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		f.Level, f.Try = ops.LevelWarning, "default_query_exec_mode=exec in the URL, unless the pooler follows prepared statements: they belong to a session"
	}
	return f, nil
}

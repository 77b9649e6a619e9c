package harness

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/semeltest/server"
)

// Servers are the PostgreSQL and the Redis that every measure uses: throw-away ones, in a directory of this run.
type Servers struct {
	dir      string
	postgres *server.Server
	redis    *server.Server
	admin    *pgxpool.Pool
	names    atomic.Int64
}

// Settings of the servers that differ from their own defaults, for the report.
const (
	PostgresSettings = "its defaults (fsync, synchronous_commit, full_page_writes on; shared_buffers 128 MB)"
	RedisSettings    = "appendonly yes, appendfsync everysec, no snapshots"
)

// Start starts both servers in a new directory below parent ("" = the system's directory for temporary files), which
// should be on a disk: what is measured is mostly durability. Close ends them and removes it.
func Start(ctx context.Context, parent string) (s *Servers, err error) {
	s = new(Servers)
	if s.dir, err = os.MkdirTemp(parent, "semel-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.Chmod(s.dir, 0o755); err != nil { // PostgreSQL may run as another user
		return nil, err
	}
	if s.postgres, err = server.PostgreSQL(ctx, server.Options{Dir: s.dir}); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.redis, err = server.Redis(ctx, server.Options{Dir: s.dir, Settings: map[string]string{"appendfsync": "everysec"}})
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	if s.admin, err = pgxpool.New(ctx, s.postgres.URL()); err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	for _, pid := range []int{s.postgres.Pid(), s.redis.Pid()} {
		if _, err := treeCPU(pid); err != nil {
			return nil, fmt.Errorf("read the processor time of a server: %w", err)
		}
	}
	return s, nil
}

// Close ends the servers and removes everything.
func (s *Servers) Close() (err error) {
	if s.admin != nil {
		s.admin.Close()
	}
	for _, one := range []*server.Server{s.postgres, s.redis} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// cpu is the processor time that all processes of the servers have had.
func (s *Servers) cpu() (sum time.Duration) {
	for _, one := range []*server.Server{s.postgres, s.redis} {
		if d, err := treeCPU(one.Pid()); err == nil {
			sum += d
		}
	}
	return sum
}

// wal is the number of bytes that PostgreSQL has written ahead since it was made; 0 = it does not respond.
func (s *Servers) wal() (position int64) {
	err := s.admin.QueryRow(context.Background(), "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&position)
	if err != nil {
		return 0
	}
	return position
}

// Checkpoint has PostgreSQL write a checkpoint, after which it logs each page whole that is changed for the first time. The
// server is this run's own, so that the user may do it.
func (e *Env) Checkpoint(ctx context.Context) error {
	if _, err := e.servers.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	return nil
}

// settle has the servers write back what an earlier measure left behind.
func (s *Servers) settle(ctx context.Context) error {
	if _, err := s.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	c := s.client()
	if err := errors.Join(c.FlushAll(ctx).Err(), c.Close()); err != nil {
		return fmt.Errorf("empty Redis: %w", err)
	}
	return nil
}

func (s *Servers) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
}

// Database is one measure's own database.
type Database struct {
	URL     string
	name    string
	servers *Servers
	pools   []*pgxpool.Pool
}

// Database makes an empty database and runs the statements in it. Who calls it closes it.
func (e *Env) Database(ctx context.Context, statements ...string) (*Database, error) {
	s := e.servers
	name := fmt.Sprintf("semel_bench_%d_%d", time.Now().UnixNano(), s.names.Add(1))
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, fmt.Errorf("create a database: %w", err)
	}
	u, err := url.Parse(s.postgres.URL())
	if err != nil {
		return nil, fmt.Errorf("parse the URL of PostgreSQL: %w", err)
	}
	u.Path = "/" + name
	d := &Database{URL: u.String(), name: name, servers: s}
	pool, err := d.Pool(ctx, 1)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	for _, statement := range statements {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return nil, fmt.Errorf("prepare a database with %q: %w", statement, errors.Join(err, d.Close()))
		}
	}
	return d, nil
}

// Pool opens a pool of exactly conns connections, all of them connected. Close closes it.
func (d *Database) Pool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of a database: %w", err)
	}
	cfg.MaxConns, cfg.MinConns = int32(conns), int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	d.pools = append(d.pools, pool)
	held := make([]*pgxpool.Conn, 0, conns)
	for range conns {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect to a database: %w", err)
		}
		held = append(held, c)
	}
	for _, c := range held {
		c.Release()
	}
	return pool, nil
}

// Close closes the pools and drops the database.
func (d *Database) Close() error {
	for _, p := range d.pools {
		p.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := d.servers.admin.Exec(ctx, "DROP DATABASE "+pgx.Identifier{d.name}.Sanitize()+" WITH (FORCE)")
	if err != nil {
		return fmt.Errorf("drop a database: %w", err)
	}
	return nil
}

// Redis is the Redis of this run: host:port. It is empty when a measure begins.
func (e *Env) Redis() string { return e.servers.redis.Addr() }

package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/semel-dev/semel/internal/process"
)

// owner is the user that a server runs as.
type owner struct{ uid, gid int }

func runAs(cmd *exec.Cmd, as *owner) {
	if as != nil {
		process.As(cmd, as.uid, as.gid)
	}
}

// unprivileged is the user for servers that refuse root: postgres, or nobody. It is nil when we are not root.
func unprivileged() (*owner, error) {
	switch {
	case !process.HasSignals:
		return nil, errors.New("throw-away servers need a Unix: give the tests a server in SEMEL_TEST_POSTGRES or " +
			"SEMEL_TEST_REDIS")
	case os.Geteuid() != 0:
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, fmt.Errorf("read the user id of %s: %w", name, err)
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, fmt.Errorf("read the group id of %s: %w", name, err)
		}
		return &owner{uid: uid, gid: gid}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: " +
		"run the tests as another user")
}

// PostgreSQL starts a throw-away PostgreSQL: superuser postgres without a password, on a free loopback port only. It is
// as durable as in production (fsync and synchronous_commit are on) unless the settings say otherwise. It takes about two
// seconds, most of them for making the data directory. Close ends it; so does the end of this process.
func PostgreSQL(ctx context.Context, o Options) (*Server, error) {
	bins, err := find(ctx, postgresPrograms)
	if err != nil {
		return nil, err
	}
	return makePostgres(ctx, bins, o, initdb)
}

// initdb makes the data directory. A power cut may lose the directory itself, but no later writes.
var initdb = []string{
	"initdb", "--no-sync", "--no-instructions", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C",
}

// Standby starts a standby of a PostgreSQL. It replicates asynchronously, so commits may not have arrived. While it is
// stopped it lags behind. With [Server.Promote] it becomes a primary without the commits that it did not receive.
func (s *Server) Standby(ctx context.Context, o Options) (*Server, error) {
	return makePostgres(ctx, s.bins, o, []string{
		"pg_basebackup", "--dbname=" + s.URL(), "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync",
	})
}

// Promote makes a standby the primary. It waits until the new primary accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	if _, err := psql(ctx, s.bins, s.URL(), "SELECT pg_promote()"); err != nil {
		return fmt.Errorf("promote a standby: %w", err)
	}
	return nil
}

// makePostgres starts a PostgreSQL whose data directory a program makes.
func makePostgres(ctx context.Context, bins binaries, o Options, program []string) (*Server, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s, err := makeDir(&postgres{as: as}, o)
	if err != nil {
		return nil, err
	}
	s.bins = bins
	if err := makeData(ctx, s, as, program); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := start(ctx, s, func(s *Server) error { return configurePostgres(s, o.Settings) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func makeData(ctx context.Context, s *Server, as *owner, program []string) error {
	if as != nil {
		if err := os.Chown(s.dir, as.uid, as.gid); err != nil {
			return fmt.Errorf("give %s to the server's user: %w", s.dir, err)
		}
	}
	cmd := exec.CommandContext(ctx, s.bins.path(program[0]), append(program[1:len(program):len(program)], "--pgdata="+s.data())...)
	cmd.Dir, cmd.Env = s.dir, s.bins.env()
	runAs(cmd, as)
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("make the data directory of postgres: %w", err)
	}
	return nil
}

// configurePostgres writes the settings that differ from the defaults to a file that is read last.
func configurePostgres(s *Server, settings map[string]string) error {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": "",
		"max_connections":         "200",
	}
	maps.Copy(all, settings)
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", k, strings.ReplaceAll(all[k], "'", "''"))
	}
	if err := os.WriteFile(filepath.Join(s.dir, "settings.conf"), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the settings of postgres: %w", err)
	}
	path := filepath.Join(s.data(), "postgresql.conf")
	conf, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the settings of postgres: %w", err)
	}
	line := []byte("\ninclude = '../settings.conf'\n")
	if bytes.HasSuffix(conf, line) {
		return nil
	}
	if err := os.WriteFile(path, append(conf, line...), 0o600); err != nil {
		return fmt.Errorf("write the settings of postgres: %w", err)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// SQL runs statements with psql on the PostgreSQL that the URL names, a transaction each, and returns the rows: a line
// each, the columns separated by '|'. It is independent of every driver, so it serves as a second opinion. The first
// statement that fails ends it. A server that wants a password that the URL does not have is an error: nobody is asked.
func SQL(ctx context.Context, address, statements string) (string, error) {
	bins, err := find(ctx, psqlProgram)
	if err != nil {
		return "", err
	}
	return psql(ctx, bins, address, statements)
}

func psql(ctx context.Context, bins binaries, address, statements string) (string, error) {
	cmd := exec.CommandContext(ctx, bins.path("psql"), "-X", "-w", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", address)
	cmd.Stdin, cmd.Env = strings.NewReader(statements), bins.env()
	out, err := output(cmd)
	return strings.TrimRight(out, "\n"), err
}

// CreateDatabase makes an empty database with a random name on the PostgreSQL that the URL names, and returns the URL of
// the new one and what drops it, its sessions included. It needs psql.
func CreateDatabase(ctx context.Context, address string) (created string, drop func(context.Context) error, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, fmt.Errorf("read the address of a PostgreSQL: %w", err)
	}
	name := "semel_" + strings.ToLower(rand.Text()[:12])
	if _, err := SQL(ctx, address, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("create a database: %w", err)
	}
	u.Path = "/" + name
	return u.String(), func(ctx context.Context) error {
		if _, err := SQL(ctx, address, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop a database: %w", err)
		}
		return nil
	}, nil
}

type postgres struct{ as *owner }

func (k *postgres) name() string { return "postgres" }

func (k *postgres) command(s *Server) *exec.Cmd {
	cmd := exec.Command(s.bins.path("postgres"), "-D", s.data())
	cmd.Dir, cmd.Env = s.dir, s.bins.env()
	runAs(cmd, k.as)
	return cmd
}

// ready reports whether the server accepts clients (of a standby: readers). Like pg_ctl, it reads the eighth line of
// postmaster.pid, which belongs to the process of the first line.
func (k *postgres) ready(s *Server) bool {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.proc.Pid()) && slices.Contains([]string{"ready", "standby"}, strings.TrimSpace(lines[7]))
}

func (k *postgres) signal(m Mode) syscall.Signal {
	switch m {
	case Smart:
		return syscall.SIGTERM
	case Fast:
		return syscall.SIGINT
	default:
		return syscall.SIGQUIT
	}
}

func (k *postgres) url(s *Server) string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}

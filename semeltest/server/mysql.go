package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

var mysqlPrograms = programs{
	service: "mysql", names: []string{"mariadbd"}, dirs: []string{"/usr/sbin", "/usr/local/bin", "/usr/bin", "/opt/homebrew/bin"},
	install: "install MariaDB 10.6 or newer (mariadb-server)",
}

// MySQL starts a throw-away MariaDB on a free loopback port, with a user root without a password. It is as durable as in
// production (innodb_flush_log_at_trx_commit is 1), unless the settings say otherwise. Settings are lines of the section
// mysqld of its my.cnf. Close ends it; so does the end of this process.
func MySQL(ctx context.Context, o Options) (*Server, error) {
	if !process.HasSignals {
		return nil, errors.New("throw-away servers need a Unix: give the tests a server in SEMEL_TEST_MYSQL")
	}
	bins, err := find(ctx, mysqlPrograms)
	if err != nil {
		return nil, err
	}
	install := filepath.Join(filepath.Dir(bins.dir), "bin", "mariadb-install-db")
	if _, err := os.Stat(install); err != nil {
		if install, err = exec.LookPath("mariadb-install-db"); err != nil {
			return nil, fmt.Errorf("find mariadb-install-db: %w", err)
		}
	}
	s, err := makeDir(mysqlServer{}, o)
	if err != nil {
		return nil, err
	}
	s.bins = bins
	cmd := exec.CommandContext(ctx, install, append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
	}, asRoot()...)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TMPDIR="+s.dir)
	if _, err := output(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("make the data directory of mysql: %w", err), s.Close())
	}
	if err := start(ctx, s, func(s *Server) error { return configureMySQL(s, o.Settings) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// asRoot lets the server run as root, if we are.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func configureMySQL(s *Server, settings map[string]string) error {
	all := map[string]string{
		"bind-address": "127.0.0.1", "port": strconv.Itoa(s.port), "datadir": s.data(), "socket": filepath.Join(s.dir, "sock"),
		"tmpdir":   s.dir, // a server that starts removes the temporary tables of others
		"pid-file": filepath.Join(s.dir, "pid"), "skip-name-resolve": "1", "innodb_flush_log_at_trx_commit": "1",
		"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "32M", "performance_schema": "0",
	}
	maps.Copy(all, settings)
	b := bytes.NewBufferString("[mysqld]\n")
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(b, "%s = %s\n", k, all[k])
	}
	if err := os.WriteFile(filepath.Join(s.dir, "my.cnf"), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the settings of mysql: %w", err)
	}
	return nil
}

type mysqlServer struct{}

func (mysqlServer) name() string { return "mysql" }

func (mysqlServer) command(s *Server) *exec.Cmd {
	cmd := exec.Command(s.bins.path("mariadbd"), append([]string{"--defaults-file=" + filepath.Join(s.dir, "my.cnf")}, asRoot()...)...)
	cmd.Dir, cmd.Env = s.dir, s.bins.env()
	return cmd
}

func (mysqlServer) ready(s *Server) bool { return shakes(s.Addr()) == nil }

func (mysqlServer) signal(m Mode) syscall.Signal {
	if m == Immediate {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

func (mysqlServer) url(s *Server) string { return "mysql://root@" + s.Addr() + "/mysql" }

// shakes wants the first packet of a server: a header of four bytes, then the version of the protocol, 10.
func shakes(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if b[4] != 10 {
		return fmt.Errorf("%s is no MySQL or MariaDB that takes clients", addr)
	}
	return nil
}

func tryMySQL(_ context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	return shakes(u.Host)
}

package server

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// service is a server that tests share.
type service struct {
	variable string
	usual    string // the address of a server that may run here already
	try      func(ctx context.Context, address string) error
	start    func(ctx context.Context, o Options) (*Server, error)

	once    sync.Once
	address string
	err     error
}

var services = map[string]*service{
	"postgres": {
		variable: "SEMEL_TEST_POSTGRES", usual: "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable",
		try: tryPostgres, start: PostgreSQL,
	},
	"redis": {
		variable: "SEMEL_TEST_REDIS", usual: "redis://127.0.0.1:6379/0",
		try: tryRedis, start: Redis,
	},
}

// Shared is the URL of a server that ordinary tests share ("postgres" or "redis"): the one that SEMEL_TEST_POSTGRES or
// SEMEL_TEST_REDIS names; else the one on the usual port of this machine, when it lets us in without a password; else a
// throw-away server of this test binary. A test must not stop it, nor touch what is not its own: see [Database].
//
// A server that cannot be had fails the test. Only when SEMEL_SKIP has its name (a list: "postgres,redis") the test is
// skipped instead, and says so.
func Shared(tb testing.TB, name string) string {
	tb.Helper()
	Need(tb, name)
	s := services[name]
	if s == nil {
		tb.Fatalf("there is no service %q: use postgres or redis", name)
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		s.address, s.err = s.find(ctx)
	})
	if s.err != nil {
		tb.Fatalf("no %s to test with: %v; set %s to the URL of one, or SEMEL_SKIP=%s to go without", name, s.err, s.variable, name)
	}
	return s.address
}

// Need skips the test, out loud, when SEMEL_SKIP has the service's name, and with -short, which is for machines that have
// nothing but Go. Tests that start a server of their own call it.
func Need(tb testing.TB, name string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("SKIPPED: -short, and it needs %s", name)
	}
	for _, n := range strings.FieldsFunc(os.Getenv("SEMEL_SKIP"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if n == name {
			fmt.Fprintf(os.Stderr, "SKIPPED, NOT PASSED: %s needs %s, and SEMEL_SKIP has it\n", tb.Name(), name)
			tb.Skipf("SKIPPED, NOT PASSED: SEMEL_SKIP has %s", name)
		}
	}
}

// Database is the URL of an empty database with a random name on the shared PostgreSQL. It is dropped when the test ends,
// with the sessions that are left in it.
func Database(tb testing.TB) string {
	tb.Helper()
	address := Shared(tb, "postgres")
	created, drop, err := CreateDatabase(context.Background(), address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return created
}

// find finds the server. One that is started lives as long as this process; its guard removes it.
func (s *service) find(ctx context.Context) (string, error) {
	if address := os.Getenv(s.variable); address != "" {
		if err := s.try(ctx, address); err != nil {
			return "", fmt.Errorf("%s is %s: %w", s.variable, address, err)
		}
		return address, nil
	}
	if s.try(ctx, s.usual) == nil {
		return s.usual, nil
	}
	started, err := s.start(ctx, Options{})
	if err != nil {
		return "", err
	}
	return started.URL(), nil
}

func tryPostgres(ctx context.Context, address string) error {
	// A refusal is cheaper to see than psql is to fetch where there is none. Not every address is a URL: psql reads those.
	if u, err := url.Parse(address); err == nil && u.Port() != "" {
		if err := dial(u); err != nil {
			return err
		}
	}
	_, err := SQL(ctx, address, "SELECT 1")
	return err
}

func tryRedis(_ context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	return dial(u)
}

func dial(u *url.URL) error {
	c, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

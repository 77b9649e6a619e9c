package server

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// service is a server that tests share.
type service struct {
	variable string
	usual    string // the address of a server that may run here already; "" = none
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
	"mysql": {
		variable: "SEMEL_TEST_MYSQL", usual: "mysql://root@127.0.0.1:3306/mysql",
		try: tryMySQL, start: MySQL,
	},
	"nats": {
		variable: "SEMEL_TEST_NATS", usual: "nats://127.0.0.1:4222",
		try: tryNATS, start: NATS,
	},
	"rabbitmq": {
		variable: "SEMEL_TEST_RABBITMQ", usual: "amqp://guest:guest@127.0.0.1:5672/",
		try: tryRabbitMQ, start: RabbitMQ,
	},
	"valkey": {variable: "SEMEL_TEST_VALKEY", try: tryRedis, start: Valkey},
}

// Shared is the URL of a server that ordinary tests share ("postgres", "mysql", "redis", "valkey", "nats" or "rabbitmq"): the one
// that SEMEL_TEST_POSTGRES, SEMEL_TEST_MYSQL, SEMEL_TEST_REDIS, SEMEL_TEST_VALKEY, SEMEL_TEST_NATS or SEMEL_TEST_RABBITMQ names;
// else the one on the usual port of this machine, if it lets us in without a password of its own (no Valkey: Redis has the same
// port); else a throw-away server of this test
// binary. A test must not stop it, nor touch what is not its own: see [Database].
//
// Where no server can be had the test is left out: see [LeaveOut].
func Shared(tb testing.TB, name string) string {
	tb.Helper()
	Need(tb, name)
	s := services[name]
	if s == nil {
		tb.Fatalf("there is no service %q: use postgres, mysql, redis, valkey, nats or rabbitmq", name)
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		s.address, s.err = s.find(ctx)
	})
	if s.err != nil {
		if os.Getenv(s.variable) != "" {
			tb.Fatalf("no %s to test with: %v", name, s.err)
		}
		LeaveOut(tb, name, fmt.Sprintf("there is none: %v; %s names one", s.err, s.variable))
	}
	return s.address
}

// Own starts a server of the test's own with settings (see [Options]), which the test may stop and kill. It is removed when the test
// ends. Where no server can be had the test is left out: see [LeaveOut].
func Own(tb testing.TB, name string, settings map[string]string) *Server {
	tb.Helper()
	Need(tb, name)
	s, err := services[name].start(tb.Context(), Options{Settings: settings})
	if err != nil {
		LeaveOut(tb, name, err.Error())
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Restart kills the server of a test and starts it again.
func Restart(tb testing.TB, s *Server) {
	tb.Helper()
	if err := s.Kill(); err != nil {
		tb.Fatal(err)
	}
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Need leaves the test out when SEMEL_SKIP has the name of what it needs, and skips it with -short, which is for machines
// that have nothing but Go. Tests that start a server of their own call it.
func Need(tb testing.TB, name string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("-short, and it needs %s", name)
	}
	if listed("SEMEL_SKIP", name) {
		LeaveOut(tb, name, "SEMEL_SKIP has it")
	}
}

// Command is the path of a program that the test needs. Where it is not installed the test is left out, and with -short it
// is skipped.
func Command(tb testing.TB, name, hint string) string {
	tb.Helper()
	Need(tb, name)
	path, err := exec.LookPath(name)
	if err != nil {
		LeaveOut(tb, name, "it is not installed ("+hint+")")
	}
	return path
}

// LeaveOut skips a test that needs something this machine does not have. go test shows nothing of a package that passes, so
// the reason goes to the file that SEMEL_LEFT_OUT names too: make test prints it at the end. What SEMEL_DEMAND lists, as
// .ci/run does, must not be left out: the test fails.
func LeaveOut(tb testing.TB, need, why string) {
	tb.Helper()
	if listed("SEMEL_DEMAND", need) {
		tb.Fatalf("SEMEL_DEMAND has %s, and %s", need, why)
	}
	RecordLeftOut(tb.Name(), need, why)
	tb.Skipf("LEFT OUT, NOT PASSED: it needs %s, and %s", need, why)
}

// RecordLeftOut prints and records what LeaveOut does, for what is no test.
func RecordLeftOut(name, need, why string) {
	line := fmt.Sprintf("LEFT OUT, NOT PASSED: %s needs %s, and %s\n", name, need, strings.ReplaceAll(why, "\n", " "))
	fmt.Fprint(os.Stderr, line)
	path := os.Getenv("SEMEL_LEFT_OUT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintf(os.Stderr, "SEMEL_LEFT_OUT: %v\n", err)
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(line)
}

// listed reports whether a variable, a list as "postgres,redis", has the name.
func listed(variable, name string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' }), name)
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
	if s.usual != "" && s.try(ctx, s.usual) == nil {
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

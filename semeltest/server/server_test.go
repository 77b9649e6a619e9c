//go:build unix

package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// needs skips a test that starts a server in a short run: those need nothing but Go.
func needs(t *testing.T, service string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	Need(t, service)
}

func startPostgres(t *testing.T, o Options) *Server {
	t.Helper()
	needs(t, "postgres")
	s, err := PostgreSQL(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
			t.Errorf("%s remains: %v", s.Dir(), err)
		}
	})
	return s
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	out, err := SQL(t.Context(), s.URL(), sql)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPostgresKeepsWhatItCommitted(t *testing.T) {
	s := startPostgres(t, Options{Settings: map[string]string{"lock_timeout": "1234ms", "search_path": "it's, public"}})
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "lock_timeout": "1234ms", "search_path": "it's, public",
	} {
		if got := query(t, s, "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	query(t, s, "CREATE TABLE x (n int)")
	url, rows := s.URL(), 0
	for name, end := range map[string]func() error{
		"smart":     func() error { return s.Stop(Smart) },
		"fast":      func() error { return s.Stop(Fast) },
		"immediate": func() error { return s.Stop(Immediate) },
		"kill":      s.Kill,
	} {
		query(t, s, "INSERT INTO x VALUES (1)")
		rows++
		pid := s.Pid()
		children, err := process.Children(pid)
		if err != nil || len(children) < 3 {
			t.Fatalf("children of the server: %v, %v", children, err)
		}
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		for _, p := range append(children, pid) {
			if !process.Gone(p) {
				t.Errorf("%s: process %d remains", name, p)
			}
		}
		if s.Pid() != 0 {
			t.Errorf("%s: process %d", name, s.Pid())
		}
		if _, err := SQL(t.Context(), s.URL(), "SELECT 1"); err == nil {
			t.Errorf("%s: it still responds", name)
		}
		if err := end(); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(name, err)
		}
		if got := query(t, s, "SELECT count(*) FROM x"); got != string(rune('0'+rows)) || s.URL() != url {
			t.Errorf("%s: %s rows at %s, want %d at %s", name, got, s.URL(), rows, url)
		}
	}
	recoveries := strings.Count(s.Log(), "was not properly shut down")
	if recoveries != 2 {
		t.Errorf("%d recoveries, want one for the immediate stop and one for the kill", recoveries)
	}
}

func TestPostgresThatCannotStart(t *testing.T) {
	needs(t, "postgres")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := PostgreSQL(t.Context(), Options{Dir: dir, Settings: map[string]string{"shared_buffers": "many"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("error %v, want one with the log", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v remains", left)
	}
}

func TestRedisKeepsConfirmedWrites(t *testing.T) {
	needs(t, "redis")
	s, err := Redis(t.Context(), Options{Settings: map[string]string{"hz": "50"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, end := range []func() error{
		func() error { return s.Stop(Fast) }, func() error { return s.Stop(Immediate) }, s.Kill,
	} {
		if got := ask(t, s.Addr(), "INCR x\r\nCONFIG GET hz\r\n", "$2\r\n50\r\n"); !strings.HasPrefix(got, ":") {
			t.Errorf("response %q", got)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, s.Addr(), "GET x\r\n", "3\r\n"); got != "$1\r\n3\r\n" {
		t.Errorf("response %q, want 3", got)
	}
}

func TestNATSStartsAgain(t *testing.T) {
	needs(t, "nats")
	s, err := NATS(t.Context(), Options{Settings: map[string]string{"server_name": "own", "jetstream.max_mem": "1M"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, end := range []func() error{func() error { return s.Stop(Fast) }, s.Kill} {
		if err := greets(s.Addr()); err != nil {
			t.Error(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if greets(s.Addr()) == nil {
			t.Error("it still runs")
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGuard kills the process that started a server: the server and its directory have to go.
func TestGuard(t *testing.T) {
	needs(t, "redis")
	if dir := os.Getenv("SEMEL_GUARD_TEST"); dir != "" {
		s, err := Redis(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		// Renamed into place: whoever sees the file may read it at once, and must find the whole address.
		draft := filepath.Join(dir, "draft")
		if err := os.WriteFile(draft, []byte(s.Addr()), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(draft, filepath.Join(dir, "ready")); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	cmd := process.Self("SEMEL_GUARD_TEST=" + dir)
	cmd.Args = append(cmd.Args, "-test.run=^TestGuard$")
	owner := process.StartTest(t, cmd)
	await(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
	addr, err := os.ReadFile(filepath.Join(dir, "ready"))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, string(addr), "PING\r\n", "PONG\r\n")
	owner.Kill()
	await(t, func() bool { left, _ := filepath.Glob(filepath.Join(dir, "semel-redis-*")); return len(left) == 0 })
	if out, err := exec.Command("pgrep", "-f", dir).Output(); err == nil {
		t.Errorf("processes remain: %s", out)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute in vain")
		}
	}
}

func TestDatabaseIsItsOwn(t *testing.T) {
	needs(t, "postgres")
	url := Database(t)
	name, err := SQL(t.Context(), url, "SELECT current_database()")
	if err != nil || !strings.HasPrefix(name, "semel_") {
		t.Errorf("database %q, %v", name, err)
	}
	if other := Database(t); other == url {
		t.Errorf("%s twice", url)
	}
	made, drop, err := CreateDatabase(t.Context(), Shared(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := drop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if out, err := SQL(t.Context(), made, "SELECT 1"); err == nil {
		t.Errorf("the dropped database returns %q", out)
	}
}

// recorder is a test that something else runs.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()                 { /* nothing to hide */ }
func (r *recorder) Name() string            { return "recorded" }
func (r *recorder) Skipf(string, ...any)    { r.skipped = true; panic(r) }
func (r *recorder) Fatalf(string, ...any)   { r.failed = true; panic(r) }
func (r *recorder) run(fn func(testing.TB)) { defer func() { _ = recover() }(); fn(r) }

// TestMissingService: a service that this machine does not have skips a test, unless it is demanded or was named.
func TestMissingService(t *testing.T) {
	if testing.Short() {
		t.Skip("-short skips all that needs a service")
	}
	for _, name := range []string{"SEMEL_SKIP", "SEMEL_DEMAND", "SEMEL_LEFT_OUT", "SEMEL_TEST_REDIS"} {
		t.Setenv(name, "") // whatever this run has
	}
	t.Setenv("SEMEL_REDIS_BIN", "/nowhere")
	old := services["redis"]
	defer func() { services["redis"] = old }()
	try := func() (r recorder) {
		services["redis"] = &service{variable: "SEMEL_TEST_REDIS", usual: "redis://127.0.0.1:1/0", try: tryRedis, start: Redis}
		r.run(func(tb testing.TB) { Shared(tb, "redis") })
		return r
	}
	if r := try(); r.failed || !r.skipped {
		t.Errorf("failed %v, skipped %v: a missing service skips the test", r.failed, r.skipped)
	}
	t.Setenv("SEMEL_DEMAND", "postgres, redis")
	if r := try(); !r.failed || r.skipped {
		t.Errorf("failed %v, skipped %v: a demanded service must be there", r.failed, r.skipped)
	}
	t.Setenv("SEMEL_DEMAND", "")
	t.Setenv("SEMEL_TEST_REDIS", "redis://127.0.0.1:1/0")
	if r := try(); !r.failed {
		t.Error("a server that was named and does not respond was replaced by another")
	}
	t.Setenv("SEMEL_SKIP", "postgres, redis")
	if r := try(); r.failed || !r.skipped {
		t.Errorf("failed %v, skipped %v: SEMEL_SKIP must skip", r.failed, r.skipped)
	}
}

// leftOut is a testing.TB that keeps what LeaveOut does to it.
type leftOut struct {
	testing.TB
	failed, skipped string
}

func (l *leftOut) Helper()                      {}
func (l *leftOut) Name() string                 { return "TestOfADatabase" }
func (l *leftOut) Fatalf(f string, args ...any) { l.failed = fmt.Sprintf(f, args...); runtime.Goexit() }
func (l *leftOut) Skipf(f string, args ...any)  { l.skipped = fmt.Sprintf(f, args...); runtime.Goexit() }

// TestLeaveOut: what a machine does not have skips a test and is recorded; what is demanded fails it.
func TestLeaveOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left-out")
	t.Setenv("SEMEL_LEFT_OUT", file)
	try := func(demand string) leftOut {
		t.Setenv("SEMEL_DEMAND", demand)
		l := leftOut{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			LeaveOut(&l, "postgres", "there is none")
		}()
		<-done
		return l
	}
	if l := try("redis"); l.failed != "" || !strings.Contains(l.skipped, "postgres, and there is none") {
		t.Errorf("failed %q, skipped %q", l.failed, l.skipped)
	}
	if l := try("redis, postgres"); l.skipped != "" || !strings.Contains(l.failed, "SEMEL_DEMAND has postgres") {
		t.Errorf("failed %q, skipped %q", l.failed, l.skipped)
	}
	got, err := os.ReadFile(file)
	if want := "LEFT OUT, NOT PASSED: TestOfADatabase needs postgres, and there is none\n"; err != nil || string(got) != want {
		t.Errorf("recorded %q, %v, want %q", got, err, want)
	}
}

func TestStandbyLagsAndIsPromoted(t *testing.T) {
	primary := startPostgres(t, Options{})
	query(t, primary, "CREATE TABLE x (n int); INSERT INTO x VALUES (1)")
	standby, err := primary.Standby(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := standby.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	query(t, primary, "INSERT INTO x VALUES (2)")
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, standby, "INSERT INTO x VALUES (3)")
	if got := query(t, standby, "SELECT n FROM x ORDER BY n"); got != "1\n3" {
		t.Errorf("the promoted standby has %q", got)
	}
}

// TestFreePortIsNotGivenOut: the system gives no port of FreePort to a connection or a listener on port 0.
func TestFreePortIsNotGivenOut(t *testing.T) {
	for range 1000 {
		if port, err := FreePort(); err != nil || port < firstPort || port >= portsEnd {
			t.Fatalf("FreePort is %d, %v", port, err)
		}
	}
}

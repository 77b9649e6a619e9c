//go:build unix

package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
		children, err := childrenOf(pid)
		if err != nil || len(children) < 3 {
			t.Fatalf("children of the server: %v, %v", children, err)
		}
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		for _, p := range append(children, pid) {
			if !gone(p) {
				t.Errorf("%s: process %d remains", name, p)
			}
		}
		if s.Pid() != 0 {
			t.Errorf("%s: process %d", name, s.Pid())
		}
		if _, err := SQL(t.Context(), s.URL(), "SELECT 1"); err == nil {
			t.Errorf("%s: it still answers", name)
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

func TestRedisKeepsWhatItAnswered(t *testing.T) {
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
			t.Errorf("answer %q", got)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, s.Addr(), "GET x\r\n", "3\r\n"); got != "$1\r\n3\r\n" {
		t.Errorf("answer %q, want 3", got)
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
	cmd := exec.Command(os.Args[0], "-test.run=^TestGuard$")
	cmd.Env = append(os.Environ(), "SEMEL_GUARD_TEST="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	await(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
	addr, err := os.ReadFile(filepath.Join(dir, "ready"))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, string(addr), "PING\r\n", "PONG\r\n")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
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
		t.Errorf("the dropped database answers %q", out)
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

func TestMissingServiceFails(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short skips all that needs a service")
	}
	t.Setenv("SEMEL_SKIP", "") // whatever this run skips
	t.Setenv("SEMEL_REDIS_BIN", "/nowhere")
	old := services["redis"]
	defer func() { services["redis"] = old }()
	services["redis"] = &service{variable: "SEMEL_TEST_REDIS", usual: "redis://127.0.0.1:1/0", try: tryRedis, start: Redis}
	t.Setenv("SEMEL_TEST_REDIS", "")
	var r recorder
	r.run(func(tb testing.TB) { Shared(tb, "redis") })
	if !r.failed || r.skipped {
		t.Errorf("failed %v, skipped %v: a missing service must fail", r.failed, r.skipped)
	}
	t.Setenv("SEMEL_SKIP", "postgres, redis")
	r = recorder{}
	r.run(func(tb testing.TB) { Shared(tb, "redis") })
	if r.failed || !r.skipped {
		t.Errorf("failed %v, skipped %v: SEMEL_SKIP must skip", r.failed, r.skipped)
	}
	t.Setenv("SEMEL_SKIP", "")
	t.Setenv("SEMEL_TEST_REDIS", "redis://127.0.0.1:1/0")
	services["redis"] = &service{variable: "SEMEL_TEST_REDIS", usual: old.usual, try: tryRedis, start: Redis}
	r = recorder{}
	r.run(func(tb testing.TB) { Shared(tb, "redis") })
	if !r.failed {
		t.Error("a server that was named and does not answer was replaced by another")
	}
}

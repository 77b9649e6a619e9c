package postgres

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// pooled starts PgBouncer in transaction mode in front of a schema of its own and returns a URL that leads through it.
// SEMEL_TEST_PGBOUNCER names the program when it is not in PATH.
func pooled(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SEMEL_TEST_PGBOUNCER")
	if program == "" {
		var err error
		if program, err = osexec.LookPath("pgbouncer"); err != nil {
			t.Skipf("SKIPPED: no pgbouncer (install it, or name it in SEMEL_TEST_PGBOUNCER): %v", err)
		}
	}
	direct, err := url.Parse(schemaURL(t))
	if err != nil {
		t.Fatal(err)
	}
	schema := direct.Query().Get("search_path")
	port, err := server.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "semel-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	password, ok := direct.User.Password()
	if ok {
		password = " password=" + password
	}
	ini := fmt.Sprintf(`[databases]
semel = host=%s port=%s dbname=%s user=%s%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
`, direct.Hostname(), direct.Port(), strings.TrimPrefix(direct.Path, "/"), direct.User.Username(), password, schema, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program, file)
	if os.Geteuid() == 0 { // it refuses to be root
		const nobody = 65534
		process.As(cmd, nobody, nobody)
		for _, path := range []string{dir, file} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Stderr = &testLog{t: t}
	process.StartTest(t, cmd)
	eventually(t, "pgbouncer listens", func() bool {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return fmt.Sprintf("postgres://semel@127.0.0.1:%d/semel?sslmode=disable&default_query_exec_mode=exec", port)
}

// testLog writes what a program says into the log of the test.
type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", b)
	}
	return len(b), nil
}

// TestFM48PoolerInTransactionMode: locks go with their transactions, nothing needs a prepared statement, and a LISTEN that
// forwards nothing is found out.
func TestFM48PoolerInTransactionMode(t *testing.T) {
	u := pooled(t)
	db := openURL(t, u, Options{Visibility: time.Minute, PollInterval: time.Second})
	q := db.Queue("q")
	fill(t, q, 300)
	const group = 40
	for i := range group {
		send(t, q, driver.Message{ID: fmt.Sprint("g-", i), Group: "g"})
	}
	seen := map[string]int{}
	next := 0
	for len(seen) < 300+group {
		ds := receive(t, q, 1)
		more, err := q.take1(50)
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, more...)
		for _, d := range ds {
			seen[d.ID]++
			if d.Group != "" && d.ID != fmt.Sprint("g-", next) {
				t.Errorf("received %s, wanted number %d", d.ID, next)
			} else if d.Group != "" {
				next++
			}
		}
		ackAll(t, q, ds)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	other := openURL(t, u, Options{})
	result := blocked(t, q)
	eventually(t, "wait", func() bool { return db.wake.sleeping("q") })
	began := time.Now()
	send(t, other.Queue("q"), driver.Message{})
	within(t, "through the pooler", result, began, soon) // by polling
	time.Sleep(helloWait)                                // long enough for a notification to ourselves
	if db.wake.listening.Load() {
		t.Error("the pooler forwards no notifications, and we trust them")
	}
	locks := 0
	err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"+
		" AND objid = $1", uint32(lockOf("q", "g"))).Scan(&locks)
	if err != nil || locks != 0 {
		t.Errorf("%d locks of the group are left, %v", locks, err)
	}
}

// take1 is one look that does not wait.
func (q *Queue) take1(limit int) ([]driver.Delivery, error) {
	ds, _, err := q.take(context.Background(), limit)
	return ds, err
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/internal/process"
)

// shop is a queue, its records and a ledger in one database, and workers of several versions as processes.
type shop struct {
	t   *testing.T
	dir string
	url string
}

// The flags about keys of each version of the worker. The consumer's name changes with the key, as it does when handlers are
// distinguished by name.
var (
	oldVersion  = []string{"--key", "json:/order_id", "--consumer", "ship-order"}
	newVersion  = []string{"--key", "json:/order_id,/action", "--consumer", "ship"}
	bothVersion = append(append([]string{}, newVersion...), "--previous-key", "json:/order_id", "--previous-consumer", "ship-order")
)

func newShop(t *testing.T) *shop {
	s := &shop{t: t, dir: t.TempDir()}
	s.url = "sqlite:" + filepath.Join(s.dir, "q.db") + "?queue=orders"
	s.install()
	s.semel(nil, "queue", "create", "--queue", s.url)
	s.query(`CREATE TABLE ledger (ref TEXT, effect_key TEXT)`)
	// Every run leaves a line, those whose effect does not commit too; then it is slow enough to be killed in the middle.
	s.write("handler.sh", `body=$(cat)
ref=$(printf %s "$body" | tr -dc 0-9)
echo "$ref" >> `+s.dir+`/runs
sleep 0.03
printf '{"sql":"INSERT INTO ledger VALUES (?, ?)","args":["%s","%s"]}\n' "$ref" "$SEMEL_EFFECT_KEY"
`)
	return s
}

func (s *shop) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// command is a copy of this binary, by the name under which it is semel: a worker starts its guard by the path of its own
// program, which under any other name would be all these tests.
func (s *shop) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(s.t.Context(), filepath.Join(s.dir, "semel"), args...)
	c.Dir = s.dir
	return c
}

func (s *shop) install() {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "semel"), b, 0o700); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) semel(in []byte, args ...string) string {
	s.t.Helper()
	var out, problems bytes.Buffer
	c := s.command(args...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &out, &problems
	if err := c.Run(); err != nil {
		s.t.Fatalf("semel %v: %v\n%s", args, err, problems.Bytes())
	}
	return out.String()
}

// send sends a copy of every order up to n, each under an id of its own.
func (s *shop) send(n int) {
	s.t.Helper()
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, `{"body":{"order_id":%d,"action":"ship"}}`+"\n", i)
	}
	s.write("messages.jsonl", lines.String())
	s.semel(nil, "send", "--queue", s.url, "--envelope", "messages.jsonl")
}

func work(url string, version ...string) []string {
	return append([]string{"work", "--queue", url, "--visibility", "1s", "--concurrency", "4", "--effects", "sql",
		"--exec", "sh handler.sh", "-o", "json"}, version...)
}

// drain runs a worker until nothing is left, and returns how many handlers it started.
func (s *shop) drain(version []string) (executed int) {
	s.t.Helper()
	var sum struct{ Executed int }
	out := s.semel(nil, work(s.url, append([]string{"--until-empty"}, version...)...)...)
	if err := json.Unmarshal([]byte(out), &sum); err != nil {
		s.t.Fatalf("%q: %v", out, err)
	}
	return sum.Executed
}

// strike runs one worker of each version at once and kills them all with SIGKILL when some handlers have run, over and over.
func (s *shop) strike(times int, versions ...[]string) {
	s.t.Helper()
	for range times {
		before := s.runs()
		var crew []*process.Process
		for _, v := range versions {
			crew = append(crew, process.StartTest(s.t, s.command(work(s.url, v...)...)))
		}
		limit := time.Now().Add(30 * time.Second)
		for s.runs() < before+5 && time.Now().Before(limit) {
			time.Sleep(5 * time.Millisecond) // the pause between two looks
		}
		for _, c := range crew {
			_ = c.Signal(syscall.SIGKILL)
		}
		for _, c := range crew {
			<-c.Done()
		}
	}
}

func (s *shop) runs() int {
	b, _ := os.ReadFile(filepath.Join(s.dir, "runs"))
	return bytes.Count(b, []byte("\n"))
}

// query runs SQL and returns the first column.
func (s *shop) query(sql string) (rows []string) {
	s.t.Helper()
	db, err := sqlite.Open(s.t.Context(), filepath.Join(s.dir, "q.db"), sqlite.Options{Create: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	r, err := db.SQL().QueryContext(s.t.Context(), sql)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		var v string
		if err := r.Scan(&v); err != nil {
			s.t.Fatal(err)
		}
		rows = append(rows, v)
	}
	if err := r.Err(); err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// once compares the ledger: n orders, each with one effect.
func (s *shop) once(when string, n int) {
	s.t.Helper()
	all := s.query(`SELECT ref FROM ledger`)
	refs := s.query(`SELECT DISTINCT ref FROM ledger`)
	keys := s.query(`SELECT DISTINCT effect_key FROM ledger`)
	if len(all) != n || len(refs) != n || len(keys) != n {
		s.t.Errorf("%s: %d effects of %d orders under %d effect keys, wanted %d of each", when, len(all), len(refs), len(keys), n)
	}
}

// TestChangeOfKey changes the key and the consumer's name under load, with workers of both versions that are killed, while
// every message comes again at every stage. Each effect happens once, and at no stage more runs than there is new work and
// there were killed runs.
func TestChangeOfKey(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are killed")
	}
	t.Parallel()
	const n, atOnce = 40, 4
	s := newShop(t)
	s.send(n)
	s.strike(2, oldVersion)
	s.send(2 * n) // copies, and new ones
	s.strike(4, oldVersion, bothVersion)
	s.drain(bothVersion)
	s.once("old and new side by side", 2*n)
	if most := 2*n + atOnce*(2+2*4); s.runs() > most {
		t.Errorf("%d runs for %d orders, with %d killed at most", s.runs(), 2*n, most-2*n)
	}

	s.send(2 * n) // the horizon: whatever the old version did alone comes by once more, or never
	if ran := s.drain(bothVersion); ran != 0 {
		t.Errorf("%d runs when all came again, with --previous-key", ran)
	}
	s.send(3 * n)
	s.strike(3, bothVersion, newVersion)
	s.drain(newVersion)
	s.once("with --previous-key and without, side by side", 3*n)

	s.send(3 * n)
	if ran := s.drain(newVersion); ran != 0 {
		t.Errorf("%d runs when all came again, without --previous-key", ran)
	}
	s.once("the new version alone", 3*n)
	t.Logf("%d runs for %d orders", s.runs(), 3*n)
}

// TestChangeOfKeyUnguarded is what TestChangeOfKey would find without --previous-key: everything that comes again runs again.
func TestChangeOfKeyUnguarded(t *testing.T) {
	if testing.Short() {
		t.Skip("many processes are started")
	}
	t.Parallel()
	const n = 40
	s := newShop(t)
	s.send(n)
	s.drain(oldVersion)
	s.send(n)
	if ran := s.drain(newVersion); ran < n { // more where a lease ended because the machine stalled
		t.Errorf("%d runs, wanted the burst of %d", ran, n)
	}
	if all := s.query(`SELECT ref FROM ledger`); len(all) != 2*n {
		t.Errorf("%d effects of %d orders: %s", len(all), n, strings.Join(all, " "))
	}
}

package postgres

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// explained is a session that notes the plans of the statements inside functions.
type explained struct {
	*pgx.Conn
	t     *testing.T
	plans []string
}

func explain1(t *testing.T, url string) *explained {
	t.Helper()
	e := &explained{t: t}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { e.plans = append(e.plans, n.Message) }
	if e.Conn, err = pgx.ConnectConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	for _, s := range []string{
		"LOAD 'auto_explain'", "SET auto_explain.log_min_duration = 0", "SET auto_explain.log_nested_statements = on",
		"SET auto_explain.log_analyze = on", "SET auto_explain.log_buffers = on", "SET client_min_messages = log",
	} {
		if _, err := e.Exec(t.Context(), s); err != nil {
			t.Skipf("SKIPPED: plans cannot be read (%s): %v", s, err)
		}
	}
	return e
}

// run runs a statement and returns its plans with those of the functions in it.
func (e *explained) run(sql string, args ...any) (rows int, plans string) {
	e.t.Helper()
	e.plans = nil
	r, err := e.Query(e.t.Context(), sql, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	for r.Next() {
		rows++
	}
	if r.Err() != nil {
		e.t.Fatal(r.Err())
	}
	return rows, strings.Join(e.plans, "\n")
}

var hits = regexp.MustCompile(`(?:shared hit=(\d+))?(?: read=(\d+))?`)

// buffers is how many pages the topmost node of a plan touched.
func buffers(plan string) (most int) {
	for _, line := range strings.Split(plan, "\n") {
		if _, after, ok := strings.Cut(line, "Buffers: "); ok {
			m := hits.FindStringSubmatch(after)
			hit, _ := strconv.Atoi(m[1])
			read, _ := strconv.Atoi(m[2])
			most = max(most, hit+read)
		}
	}
	return most
}

func (e *explained) good(what, plan string, most int) {
	e.t.Helper()
	for _, bad := range []string{"Seq Scan on semel_message", "Sort Key", "Hash Join", "Bitmap Heap Scan on semel_message"} {
		if strings.Contains(plan, bad) {
			e.t.Errorf("%s has %q in its plan:\n%s", what, bad, plan)
			return
		}
	}
	if !strings.Contains(plan, "semel_message") {
		e.t.Errorf("%s: no plan was seen:\n%s", what, plan)
	}
	if n := buffers(plan); n > most {
		e.t.Errorf("%s touched %d pages, wanted at most %d:\n%s", what, n, most, plan)
	}
	e.t.Logf("%s: %d pages", what, buffers(plan))
}

// TestPlansStayGood: plans that a session made while the table was empty are good for a large one too.
func TestPlansStayGood(t *testing.T) {
	u := emptySchema(t)
	q := openURL(t, u, Options{}).Queue("big")
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := idOf(t, q)
	e := explain1(t, u)
	statements := func() (plans map[string]string, received int) {
		plans = map[string]string{}
		received, plans["receive"] = e.run(sqlReceive, "big", 100, int64(30e6), nil, 0, int64(64<<20), uuid([16]byte{1}))
		_, plans["fetch"] = e.run(sqlFetch, "big", 10, int64(64<<20))
		pos, count, nonces := []int64{1, 2, 3, 4, 5}, []int32{1, 1, 1, 1, 1}, uuids{{1}, {1}, {1}, {1}, {1}}
		_, plans["keep"] = e.run(sqlExtend, pos, count, nonces, int64(30e6))
		_, plans["return"] = e.run(sqlReturn, pos[:2], count[:2], nonces[:2], []int64{0, 0})
		_, plans["remove"] = e.run(sqlRemove, pos, count, nonces, "big", [][]byte{[]byte("group")})
		now := time.Now()
		_, plans["send"] = e.run(sqlSendOrdered, []int32{1}, []int64{0}, []*time.Time{&now}, [][]byte{{1}}, [][]byte{nil},
			[][]byte{{2}}, []string{"big"}, [][]byte{[]byte("group")}, []bool{true})
		return plans, received
	}
	for range 8 { // after five executions a session may keep a plan
		statements()
	}
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill(t, q, 20_000)
	load(t, q, id, 180_000, "now")
	load(t, q, id, 50_000, "later")
	group := driver.Message{Group: "group"}
	if err := q.Send(t.Context(), group, group, group); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		plans, received := statements()
		if i == 0 && received != 100 {
			t.Errorf("received %d, wanted 100", received)
		}
		for what, most := range map[string]int{"receive": 4000, "fetch": 2000, "keep": 500, "return": 500, "remove": 500, "send": 200} {
			e.good(what, plans[what], most)
		}
	}
}

// idOf is the id of a queue.
func idOf(t *testing.T, q *Queue) (id int32) {
	t.Helper()
	if err := q.db.pool.QueryRow(t.Context(), "SELECT id FROM semel_queue WHERE name = $1", q.name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// load fills the table without going through Send.
func load(t *testing.T, q *Queue, id int32, n int, when string) {
	t.Helper()
	due := map[string]string{"now": "now()", "later": "now() + interval '1 hour'"}[when]
	_, err := q.db.pool.Exec(t.Context(), `INSERT INTO semel_message (queue, due_at, hold, sent_at, id, body)
		SELECT $1, `+due+`, 3600000000, now(), decode(md5(i::text), 'hex'), decode(repeat('ab', 300), 'hex')
		FROM generate_series(1, $2::int) i`, id, n)
	if err != nil {
		t.Fatal(err)
	}
}

// TestReceivePassesByWhatIsGone: 200,000 messages went through without a vacuum, 50,000 are in flight, and as many are
// delayed (a fifth of that, all in nightly runs). Handing out goes on as fast as in the beginning.
func TestReceivePassesByWhatIsGone(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("SKIPPED, runs at night: it compares times, and takes many seconds")
	}
	db := openURL(t, emptySchema(t), Options{})
	q := db.Queue("churn")
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.pool.Exec(t.Context(), "ALTER TABLE semel_message SET (autovacuum_enabled = off)"); err != nil {
		t.Fatal(err)
	}
	id := idOf(t, q)
	load(t, q, id, 50_000, "later")
	load(t, q, id, 310_000, "now")
	through := func(n, batch int, ack bool) time.Duration {
		began := time.Now()
		for range n / batch {
			ds, err := q.Receive(t.Context(), batch)
			if err != nil || len(ds) != batch {
				t.Fatal(len(ds), err)
			}
			if ack {
				ackAll(t, q, ds)
			}
		}
		return time.Since(began)
	}
	// The quickest of several: what else the machine does must not decide.
	quickest := func(most int, enough time.Duration) time.Duration {
		best := time.Hour
		for ; most > 0 && best > enough; most-- {
			best = min(best, through(2000, 100, true))
		}
		return best
	}
	through(10_000, 100, true) // the first look of a process has more to do
	first := quickest(5, 0)
	through(180_000, 1000, true)
	through(50_000, 1000, false)
	last := quickest(20, 3*first+100*time.Millisecond)
	t.Logf("2000 messages at first %v, at last %v", first, last)
	if last > 3*first+100*time.Millisecond {
		t.Errorf("2000 messages took %v at first and %v at last", first, last)
	}
	// A process that starts now has to find its way past all of them once.
	other := openAgain(t, db)
	began := time.Now()
	for range 20 {
		if ds, err := other.Queue("churn").Receive(t.Context(), 100); err != nil || len(ds) != 100 {
			t.Fatal(len(ds), err)
		}
	}
	t.Logf("20 looks of a new process took %v", time.Since(began))
}

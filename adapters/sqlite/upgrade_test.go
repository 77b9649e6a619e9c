package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file upgrades files of schema 1. What a program of schema 1 does is written out here as the SQL that it sends: the
// program itself is not there any more.

const (
	oldClaim = `INSERT INTO semel_record (token, hash, state, generation, nonce, lease_until, lease, beat, takeover,
  unknown, updated_at, completed_at, retain_until, result, reason, consumer, tenant, key, fingerprint, epoch, spent,
  attempt, failures, takeovers, uncertainty, disposed, retry_at, created_at, deliveries)
  VALUES (?, ?, 1, 1, ?, ?, ?, 0, ?, 0, ?, 0, 0, NULL, '', ?, ?, ?, ?, 0, 0, 1, 0, 0, 0, 0, 0, ?, ?)
  ON CONFLICT (hash) DO NOTHING`
	oldComplete = `UPDATE semel_record SET state = 3, updated_at = ?, completed_at = ?, retain_until = ?, result = ?,
  reason = ?, unknown = 0 WHERE token = ? AND state = 1 AND nonce = ? AND generation = ? AND hash = ?`
	oldDraw = "UPDATE semel_state SET token = token + 1 WHERE one = 1 RETURNING token"
)

// old is a program of schema 1 on one connection, with prepared statements as it has them.
type old struct {
	t                     testing.TB
	db                    *sql.DB
	claims, ends, drawing *sql.Stmt
}

// oldProgram makes a file of schema 1.
func oldProgram(t testing.TB) (o *old, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "semel.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	o = &old{t: t, db: db}
	o.exec(schema0001)
	o.claims, o.ends, o.drawing = o.prepare(oldClaim), o.prepare(oldComplete), o.prepare(oldDraw)
	t.Cleanup(func() {
		if err := errors.Join(o.claims.Close(), o.ends.Close(), o.drawing.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return o, path
}

func (o *old) exec(query string, args ...any) {
	o.t.Helper()
	if _, err := o.db.ExecContext(o.t.Context(), query, args...); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
}

func (o *old) prepare(query string) *sql.Stmt {
	o.t.Helper()
	return must(o.db.PrepareContext(o.t.Context(), query))(o.t)
}

// claim makes a record as schema 1 does.
func (o *old) claim(key string) driver.Hold {
	o.t.Helper()
	c := claim(key)
	h := driver.Hold{Key: c.Key, Generation: 1, Nonce: c.Nonce}
	if err := o.drawing.QueryRowContext(o.t.Context()).Scan(&h.Token); err != nil {
		o.t.Fatal(err)
	}
	now := time.Now()
	res, err := o.claims.ExecContext(o.t.Context(), int64(h.Token), hash16(&h.Key), h.Nonce[:], now.Add(c.Lease).UnixMicro(),
		int64(c.Lease), 0, now.UnixMicro(), h.Key.Consumer, h.Key.Tenant, h.Key.Raw, []byte("rcp1same"), now.UnixMicro(), `["m"]`)
	if err != nil {
		o.t.Fatal(err)
	}
	if n := must(res.RowsAffected())(o.t); n != 1 {
		o.t.Fatalf("key %q has a record", key)
	}
	return h
}

// complete ends an attempt as schema 1 does.
func (o *old) complete(h driver.Hold) bool {
	o.t.Helper()
	now := time.Now()
	res, err := o.ends.ExecContext(o.t.Context(), now.UnixMicro(), now.UnixMicro(), now.Add(time.Hour).UnixMicro(), []byte("old"),
		"", int64(h.Token), h.Nonce[:], int64(h.Generation), hash16(&h.Key))
	if err != nil {
		o.t.Fatal(err)
	}
	return must(res.RowsAffected())(o.t) == 1
}

// reads reports whether a program of schema 1 can read a record: it reads the deliveries as JSON.
func (o *old) reads(k driver.Key) bool {
	o.t.Helper()
	var text string
	err := o.db.QueryRowContext(o.t.Context(), "SELECT deliveries FROM semel_record WHERE hash = ?", hash16(&k)).Scan(&text)
	if err != nil {
		o.t.Fatal(err)
	}
	var ids []string
	return text == "" || json.Unmarshal([]byte(text), &ids) == nil
}

// oldStates are the states of the records of a filled file, with a claim that was abandoned.
var oldStates = []string{"in-progress", "abandoned", "released", "completed", "failed", "uncertain"}

// fill writes records, messages and letters in every state there is, and answers the attempt that is in progress.
func (o *old) fill() (live driver.Hold) {
	now := time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).UnixMicro() }
	for i, name := range oldStates {
		h := o.claim(name)
		switch name {
		case "in-progress":
			live = h
		case "abandoned":
			o.exec("UPDATE semel_record SET lease_until = ? WHERE token = ?", at(-time.Minute), int64(h.Token))
		case "uncertain":
			o.exec("UPDATE semel_record SET state = 5, unknown = 1, uncertainty = 1, reason = 'doubt' WHERE token = ?", int64(h.Token))
		default:
			o.exec(`UPDATE semel_record SET state = ?, retain_until = ?, result = CAST('result' AS BLOB), retry_at = ?, spent = 1,
				reason = 'why' WHERE token = ?`, max(i, 1), at(24*time.Hour), at(-time.Second), int64(h.Token))
		}
	}
	o.exec("INSERT INTO semel_queue (id, name, next, taken) VALUES (1, 'orders', 10, 3)")
	const low = int64(1) << queueShift
	for pos, id := range map[int64]string{2: "flying", 3: "lost", 4: "ready"} {
		o.exec("INSERT INTO semel_stream (pos, id, sent_at, size, headers, body) VALUES (?, ?, ?, 1, '{\"h\":\"1\"}', CAST('b' AS BLOB))",
			low|pos, id, at(-time.Minute))
	}
	o.exec("INSERT INTO semel_flight VALUES (?, ?, ?, 1, 0, ?, ?)", low|1, low|1, low|2, at(time.Hour), time.Hour.Microseconds())
	o.exec("INSERT INTO semel_flight VALUES (?, ?, ?, 1, 0, ?, ?)", low|2, low|3, low|3, at(-time.Second), time.Minute.Microseconds())
	timed := func(pos int64, id string, waits int, until time.Duration, group any) {
		o.exec("INSERT INTO semel_timed VALUES (?, 1, ?, ?, ?, 0, 0, 0, ?, ?, ?, 1, NULL, CAST('b' AS BLOB))", low|pos, waits, at(until),
			time.Hour.Microseconds(), group, id, at(-time.Minute))
	}
	timed(5, "later", 0, time.Hour, nil)
	timed(6, "first", 0, -time.Second, "g")
	timed(7, "second", 1, -time.Second, "g")
	for _, kind := range []string{"dead", "mismatch", "uncertain"} {
		o.exec(`INSERT INTO semel_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts, first_received,
			dead_at, msg_id, msg_queue, grp, sent_at, body) VALUES (1, ?1, ?1, 'why', 'c', '', 'failed', 1, 5, 2, 0, ?2, 'm', 'orders', '',
			0, CAST('b' AS BLOB))`, kind, at(0))
	}
	return live
}

func TestUpgradeFrom1(t *testing.T) {
	o, path := oldProgram(t)
	live := o.fill()
	var se *SchemaError
	if _, err := Open(t.Context(), path, Options{}); !errors.As(err, &se) || se.Have != 1 {
		t.Fatalf("a file of schema 1: %v", err)
	}
	wantErr(t, se, "has schema 1", "semel migrate")
	if from, to, err := Migrate(t.Context(), path); from != 1 || to != schemaVersion || err != nil {
		t.Fatal(from, to, err)
	}
	db := openAt(t, path, Options{})
	s, ctx := db.Store(), t.Context()
	rs := must(s.Records(ctx, driver.RecordFilter{}))(t)
	if len(rs) != len(oldStates) {
		t.Fatalf("%d records", len(rs))
	}
	for i, r := range rs {
		if r.Key.Raw != oldStates[i] || r.State != driver.State(max(i, 1)) || r.Watermark.Running != "" ||
			len(r.Deliveries) != 1 || r.Fingerprint != "rcp1same" {
			t.Errorf("record %d became %+v", i, r)
		}
	}
	for i, want := range []driver.Verdict{driver.Busy, driver.Acquired, driver.Acquired, driver.Replay, driver.Failed, driver.Parked} {
		c := claim(oldStates[i])
		g := must(s.Claim(ctx, c))(t)[0]
		if g.Verdict != want || want == driver.Replay && string(g.Result) != "result" {
			t.Errorf("claim of %s answered %+v, wanted %v", oldStates[i], g, want)
		}
		if c.Version = driver.TextVersion("1"); must(s.Claim(ctx, c))(t)[0].Verdict != driver.Mismatch {
			t.Errorf("%s: a claim with a version was not refused by a record without", oldStates[i])
		}
		if g.Verdict == driver.Acquired {
			out := must(s.Finish(ctx, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour}))(t)
			if out[0] != driver.Applied {
				t.Errorf("completion of %s: %v", oldStates[i], out)
			}
		}
	}
	// The old worker may end what it began.
	if !o.complete(live) {
		t.Error("the old worker's completion was refused")
	}
	upgradedQueue(t, db)
	upgradedOperator(t, s, rs[4].Key)
}

// upgradedQueue looks for the messages and letters that fill wrote.
func upgradedQueue(t *testing.T, db *DB) {
	t.Helper()
	q, ctx := db.Queue("orders"), t.Context()
	if st := must(q.Stats(ctx))(t); st.Letters != 3 || st.Delayed != 1 || st.InFlight != 1 {
		t.Errorf("stats are %+v", st)
	}
	got := map[string]bool{}
	for len(got) < 4 {
		for _, d := range must(q.Receive(ctx, 10))(t) {
			got[d.ID] = true
			if out := must(q.Settle(ctx, driver.Settlement{Receipt: d.Receipt}))(t); out[0] != driver.Applied {
				t.Errorf("ack of %q: %v", d.ID, out)
			}
		}
	}
	if !got["ready"] || !got["lost"] || !got["first"] || !got["second"] {
		t.Errorf("received %v", got)
	}
	ls := must(q.Letters(ctx, 0))(t)
	if len(ls) != 3 || ls[0].ID != "dead" || ls[0].Version != "" || string(ls[2].Message.Body) != "b" {
		t.Errorf("letters are %+v", ls)
	}
}

// upgradedOperator redrives a failed record of before, and runs it with steps.
func upgradedOperator(t *testing.T, s *Store, k driver.Key) {
	t.Helper()
	ctx := t.Context()
	r, out, err := s.Operate(ctx, driver.Operation{Kind: driver.Redrive, Key: k, By: "ann", Keep: time.Hour})
	if err != nil || out != driver.Applied || r.Generation != 2 {
		t.Fatal(r, out, err)
	}
	if es := must(s.Audit(ctx, driver.AuditFilter{Key: k}))(t); len(es) != 1 || es[0].By != "ann" || es[0].Generation != 1 {
		t.Errorf("the trail is %+v", es)
	}
	g := must(s.Claim(ctx, claim(k.Raw)))(t)[0]
	w := driver.StepWrite{Kind: driver.FinishStep, Name: "pay", Result: []byte("1")}
	if got := must(s.WriteSteps(ctx, g.Hold, w))(t); got != driver.Applied {
		t.Errorf("a step answered %v", got)
	}
}

// TestUpgradeUnderWorkers upgrades, in several processes at once, while a worker of schema 1 runs on.
func TestUpgradeUnderWorkers(t *testing.T) {
	o, path := oldProgram(t)
	var wg sync.WaitGroup
	upgraded := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			if out, err := child(t, "migrate", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	go func() { wg.Wait(); close(upgraded) }()
	n, after := 0, 0
	for after < 10 {
		if h := o.claim(fmt.Sprint(n)); !o.complete(h) {
			t.Fatal("an old worker's completion was refused")
		}
		n++
		select {
		case <-upgraded:
			after++
		default:
		}
	}
	db := openAt(t, path, Options{})
	if rs := must(db.Store().Records(t.Context(), driver.RecordFilter{State: driver.Completed}))(t); len(rs) != n {
		t.Errorf("%d completed records, wanted %d", len(rs), n)
	}
}

// TestOldWorkersLeaveVersions: a worker of schema 1 knows nothing of versions, and would ack a newer one as a duplicate.
// Its sweep knows nothing of steps.
func TestOldWorkersLeaveVersions(t *testing.T) {
	o, path := oldProgram(t)
	if _, _, err := Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db := openAt(t, path, Options{})
	s, ctx := db.Store(), t.Context()
	entity := claim("entity")
	entity.Version = driver.TextVersion("1")
	gs := must(s.Claim(ctx, claim("plain"), entity))(t)
	if !o.reads(gs[0].Hold.Key) || o.reads(entity.Key) {
		t.Error("an old worker reads a versioned record, or no other")
	}
	w := driver.StepWrite{Kind: driver.RegisterStep, Name: "pay"}
	if out := must(s.WriteSteps(ctx, gs[0].Hold, w))(t); out != driver.Applied {
		t.Fatal(out)
	}
	if !o.complete(gs[0].Hold) {
		t.Error("an old worker's completion was refused")
	}
	o.exec("DELETE FROM semel_record WHERE token = ? AND state IN (2, 3, 4) AND retain_until < ?", int64(gs[0].Hold.Token),
		time.Now().Add(48*time.Hour).UnixMicro())
	if rows := must(s.Steps(ctx, gs[0].Hold))(t); len(rows) != 0 {
		t.Errorf("the steps of a purged record are there: a new run of the key would find them done: %+v", rows)
	}
}

// TestUpgradedIsFresh: an upgraded file has what a new one has.
func TestUpgradedIsFresh(t *testing.T) {
	_, path := oldProgram(t)
	if _, _, err := Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	upgraded, fresh := openAt(t, path, Options{}), open(t)
	const list = "SELECT count(*) || group_concat(type || sql, ';') FROM (SELECT type, sql FROM sqlite_master ORDER BY name)"
	var a, b string
	for db, dest := range map[*DB]*string{upgraded: &a, fresh: &b} {
		if err := db.SQL().QueryRowContext(t.Context(), list).Scan(dest); err != nil {
			t.Fatal(err)
		}
	}
	if a != b || len(a) < 5000 {
		t.Errorf("the upgraded file has\n%s\nwanted\n%s", a, b)
	}
}

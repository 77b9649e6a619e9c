package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// This file upgrades databases of schema 1. What a program of schema 1 does is written out here as the SQL that it sends:
// the program itself is not there any more.

// old is a program of schema 1 on one connection.
type old struct {
	t    testing.TB
	conn *pgx.Conn
}

// oldProgram connects one to a schema of its own that has tables of schema 1.
func oldProgram(t testing.TB) (o *old, url string) {
	t.Helper()
	url = emptySchema(t)
	o = &old{t, connectTo(t, url)}
	if _, err := o.conn.PgConn().Exec(t.Context(), schema0001).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return o, url
}

func connectTo(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	registerArrays(conn)
	return conn
}

func (o *old) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.conn.Exec(o.t.Context(), sql, args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

// claim makes a record as schema 1 does, and answers its attempt.
func (o *old) claim(c driver.Claim) (h driver.Hold, err error) {
	var token int64
	var found []byte
	err = o.conn.QueryRow(o.t.Context(), "SELECT drawn, found FROM semel_claim_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		claimOneArgs(hashOf(&c.Key), &c, time.Second)...).Scan(&token, &found)
	if err == nil && found != nil {
		err = errors.New("the key has a record")
	}
	return driver.Hold{Key: c.Key, Generation: 1, Token: uint64(token), Nonce: c.Nonce}, err
}

// complete ends an attempt as schema 1 does.
func (o *old) complete(h driver.Hold) (done bool, err error) {
	f := driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour, Result: []byte("old")}
	rows, err := o.conn.Query(o.t.Context(), "SELECT semel_complete_one($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		completeOneArgs(hashOf(&h.Key), &f, time.Second)...)
	if err != nil {
		return false, err
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	return len(got) == 1, err
}

// reads reports whether a program of schema 1 can read a record: it wants so many fields and no others.
func (o *old) reads(k driver.Key) bool {
	var b []byte
	err := o.conn.QueryRow(o.t.Context(), "SELECT semel_row(r) FROM semel_record r WHERE hash = $1", uuid(hashOf(&k))).Scan(&b)
	if err != nil {
		o.t.Fatal(err)
	}
	return binary.BigEndian.Uint32(b) == 29
}

// oldStates are the states in which the records of a filled database are, with one of a claim that was abandoned.
var oldStates = []string{"in-progress", "abandoned", "released", "completed", "failed", "uncertain"}

// fill writes records, messages and letters in every state there is, and answers the attempt that is in progress.
func (o *old) fill() driver.Hold {
	var live driver.Hold
	for i, name := range oldStates {
		c := claimOf(driver.Key{Consumer: "shop", Tenant: "t", Raw: name}, long)
		c.Fingerprint, c.DeliveryID = "rcp1same", "m-"+name
		h, err := o.claim(c)
		if err != nil {
			o.t.Fatal(err)
		}
		hash := uuid(hashOf(&c.Key))
		switch state := max(i, 1); name {
		case "in-progress":
			live = h
		case "abandoned":
			o.exec("UPDATE semel_record SET lease_until = now() - interval '1 minute' WHERE hash = $1", hash)
		case "uncertain":
			o.exec("UPDATE semel_record SET state = 5, unknown = true, uncertainty = 1, reason = 'doubt' WHERE hash = $1", hash)
		default:
			o.exec(`UPDATE semel_record SET state = $2, retain_until = now() + interval '1 day', result = 'result', retry_at = now(),
				spent = true, reason = 'why' WHERE hash = $1`, hash, int16(state))
		}
	}
	o.exec("INSERT INTO semel_queue (name) VALUES ('orders')")
	o.exec(`INSERT INTO semel_message (queue, due_at, until, hold, sent_at, count, waits, id, grp, headers, body) VALUES
		(1, now(), NULL, 0, now(), 0, false, 'ready', NULL, '{"h":"1"}', 'body'),
		(1, now() + interval '1 hour', NULL, 3600e6, now(), 0, false, 'later', NULL, NULL, ''),
		(1, now(), now() + interval '1 hour', 3600e6, now(), 1, false, 'flying', NULL, NULL, ''),
		(1, now(), now() - interval '1 minute', 60e6, now(), 3, false, 'lost', NULL, NULL, ''),
		(1, now(), NULL, 0, now(), 0, false, 'first', 'g', NULL, ''),
		(1, now(), NULL, 0, now(), 0, true, 'second', 'g', NULL, '')`)
	for _, kind := range []string{"dead", "mismatch", "uncertain"} {
		o.exec(`INSERT INTO semel_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts, dead_at,
			msg_id, msg_queue, body) VALUES (1, $1, $1, 'why', 'shop', 't', 'failed', 1, 5, 2, now(), 'm', 'orders', 'b')`, kind)
	}
	return live
}

func TestUpgradeFrom1(t *testing.T) {
	o, url := oldProgram(t)
	live := o.fill()
	refusesToOpen(t, url, Options{Create: true}, "has schema 1", "semel migrate")
	if from, to, err := Migrate(t.Context(), url); from != 1 || to != schemaVersion || err != nil {
		t.Fatal(from, to, err)
	}
	db := openURL(t, url, Options{})
	s, ctx := db.Store(), t.Context()
	rs, err := s.Records(ctx, driver.RecordFilter{})
	if err != nil || len(rs) != len(oldStates) {
		t.Fatalf("%d records, %v", len(rs), err)
	}
	for i, r := range rs {
		if r.Key.Raw != oldStates[i] || r.State != driver.State(max(i, 1)) || r.Watermark.Running != "" ||
			len(r.Deliveries) != 1 || r.Fingerprint != "rcp1same" {
			t.Errorf("record %d became %+v", i, r)
		}
	}
	for i, want := range []driver.Verdict{driver.Busy, driver.Acquired, driver.Acquired, driver.Replay, driver.Failed, driver.Parked} {
		c := claimOf(rs[i].Key, long)
		c.Fingerprint = "rcp1same"
		g := claimed1(t, s, c)
		if g.Verdict != want || want == driver.Replay && string(g.Result) != "result" {
			t.Errorf("claim of %s answered %+v, wanted %v", rs[i].Key.Raw, g, want)
		}
		if c.Version = driver.TextVersion("1"); claimed1(t, s, c).Verdict != driver.Mismatch {
			t.Errorf("%s: a claim with a version was not refused by a record without", rs[i].Key.Raw)
		}
		if g.Verdict == driver.Acquired {
			if out, err := s.Finish(ctx, completion(g)); err != nil || out[0] != driver.Applied {
				t.Errorf("completion of %s: %v, %v", rs[i].Key.Raw, out, err)
			}
		}
	}
	// The old worker may end what it began, and the new one what the old one began.
	if done, err := o.complete(live); !done || err != nil {
		t.Errorf("the old worker's completion: %v, %v", done, err)
	}
	upgradedQueue(t, db)
	upgradedOperator(t, s, rs[4].Key)
}

func claimed1(t *testing.T, s *Store, c driver.Claim) driver.Grant {
	t.Helper()
	gs, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return gs[0]
}

// upgradedQueue looks for the messages and letters that fill wrote.
func upgradedQueue(t *testing.T, db *DB) {
	t.Helper()
	q, ctx := db.Queue("orders"), t.Context()
	if st, err := q.Stats(ctx); err != nil || st.Letters != 3 || st.Delayed != 1 {
		t.Errorf("stats are %+v, %v", st, err)
	}
	got := map[string]int{}
	for _, n := range []int{3, 1} { // the second of the group comes when the first is gone
		for _, d := range receive(t, q, n) {
			got[d.ID] = d.Count
			if o := settle(t, q, driver.Settlement{Receipt: d.Receipt}); o != driver.Applied {
				t.Errorf("ack of %q: %v", d.ID, o)
			}
		}
	}
	for id, count := range map[string]int{"ready": 1, "lost": 4, "first": 1, "second": 1} {
		if got[id] != count {
			t.Errorf("message %q was handed out for the %d. time, wanted %d", id, got[id], count)
		}
	}
	none(t, q)
	ls, err := q.Letters(ctx, 0)
	if err != nil || len(ls) != 3 || ls[0].ID != "dead" || ls[0].Version != "" || string(ls[2].Message.Body) != "b" {
		t.Errorf("letters are %+v, %v", ls, err)
	}
}

// upgradedOperator redrives a failed record of before, and runs it with steps.
func upgradedOperator(t *testing.T, s *Store, k driver.Key) {
	t.Helper()
	ctx := t.Context()
	r, o, err := s.Operate(ctx, driver.Operation{Kind: driver.Redrive, Key: k, By: "ann", Keep: time.Hour})
	if err != nil || o != driver.Applied || r.Generation != 2 {
		t.Fatal(r, o, err)
	}
	if es, err := s.Audit(ctx, driver.AuditFilter{Key: k}); err != nil || len(es) != 1 || es[0].By != "ann" || es[0].Generation != 1 {
		t.Errorf("the trail is %+v, %v", es, err)
	}
	c := claimOf(k, long)
	g := mustClaim(t, s, c)[0]
	w := driver.StepWrite{Kind: driver.FinishStep, Name: "pay", Result: []byte("1")}
	if o, err := s.WriteSteps(ctx, g.Hold, w); err != nil || o != driver.Applied {
		t.Errorf("a step answered %v, %v", o, err)
	}
}

// TestUpgradeUnderWorkers upgrades, in several processes at once, while workers of schema 1 run on.
func TestUpgradeUnderWorkers(t *testing.T) {
	o, url := oldProgram(t)
	workers := []*old{o, {t, connectTo(t, url)}, {t, connectTo(t, url)}}
	var stop atomic.Bool
	var done [3]atomic.Int64
	var running, upgrading sync.WaitGroup
	for i, w := range workers {
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				h, err := w.claim(claimOf(driver.Key{Raw: fmt.Sprint(i, "-", n)}, long))
				if err != nil {
					t.Errorf("claim by an old worker: %v", err)
					return
				}
				if ok, err := w.complete(h); err != nil || !ok {
					t.Errorf("completion by an old worker: %v, %v", ok, err)
					return
				}
				done[i].Add(1)
			}
		})
	}
	// each waits until every worker has done something more.
	each := func() {
		for i := range done {
			from, end := done[i].Load(), time.Now().Add(3*time.Minute)
			for done[i].Load() == from && !t.Failed() && time.Now().Before(end) {
				time.Sleep(time.Millisecond) // the pause between two looks
			}
		}
	}
	each()
	for range 3 {
		upgrading.Go(func() {
			if _, to, err := Migrate(t.Context(), url); err != nil || to != schemaVersion {
				t.Error(to, err)
			}
		})
	}
	upgrading.Wait()
	each()
	each()
	stop.Store(true)
	running.Wait()
	db := openURL(t, url, Options{})
	rs, err := db.Store().Records(t.Context(), driver.RecordFilter{State: driver.Completed})
	if want := int(done[0].Load() + done[1].Load() + done[2].Load()); err != nil || len(rs) != want {
		t.Errorf("%d completed records, wanted %d, %v", len(rs), want, err)
	}
}

// TestUpgradeGivesWay: while a transaction has a table open the upgrade does not keep workers from it.
func TestUpgradeGivesWay(t *testing.T) {
	o, url := oldProgram(t)
	reader := connectTo(t, url)
	for _, sql := range []string{"BEGIN", "SELECT count(*) FROM semel_record"} {
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { _, _, err := Migrate(t.Context(), url); ended <- err }()
	awaited := func() (n int) {
		err := reader.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = 'semel_record'::regclass AND NOT granted").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(3 * time.Minute); awaited() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the upgrade does not wait for the table")
		}
	}
	if _, err := o.claim(claimOf(driver.Key{Raw: "meanwhile"}, long)); err != nil && code(err) != codeLocked {
		t.Errorf("a claim meanwhile answered %v", err)
	}
	for end := time.Now().Add(3 * time.Minute); awaited() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the upgrade does not give way")
		}
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestOldWorkersLeaveVersions: a worker of schema 1 knows nothing of versions, and would ack a newer one as a duplicate.
func TestOldWorkersLeaveVersions(t *testing.T) {
	o, url := oldProgram(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db := openURL(t, url, Options{})
	s := db.Store()
	plain, entity := driver.Key{Raw: "plain"}, driver.Key{Raw: "entity"}
	c := claimOf(entity, long)
	c.Version = driver.TextVersion("1")
	gs := mustClaim(t, s, claimOf(plain, long), c)
	if !o.reads(plain) || o.reads(entity) {
		t.Errorf("an old worker reads the plain record: %v, the versioned one: %v", o.reads(plain), o.reads(entity))
	}
	// Not even with the right token.
	if done, err := o.complete(gs[1].Hold); done || err != nil {
		t.Errorf("an old worker completed a versioned record: %v, %v", done, err)
	}
	if done, err := o.complete(gs[0].Hold); !done || err != nil {
		t.Errorf("an old worker's completion: %v, %v", done, err)
	}
}

package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	long = time.Hour
	keep = 24 * time.Hour
)

func testKeys(format string, n int) []driver.Key {
	ks := make([]driver.Key, n)
	for i := range ks {
		ks[i] = driver.Key{Consumer: "test", Raw: fmt.Sprintf(format, i)}
	}
	return ks
}

func claimOf(k driver.Key, lease time.Duration) driver.Claim {
	c := driver.Claim{Key: k, Lease: lease}
	_, _ = rand.Read(c.Nonce[:]) // never fails
	return c
}

func claimsOf(ks []driver.Key, lease time.Duration) []driver.Claim {
	cs := make([]driver.Claim, len(ks))
	for i, k := range ks {
		cs[i] = claimOf(k, lease)
	}
	return cs
}

func mustClaim(t testing.TB, s *Store, cs ...driver.Claim) []driver.Grant {
	t.Helper()
	gs, err := s.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range gs {
		if g.Verdict != driver.Acquired || g.Err != nil {
			t.Fatalf("key %q returned %v, %v", cs[i].Key.Raw, g.Verdict, g.Err)
		}
	}
	return gs
}

func completion(g driver.Grant) driver.Finish {
	return driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep}
}

// lockRow holds the row lock of a key's record until release is called.
func lockRow(t testing.TB, db *DB, k driver.Key) (release func()) {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := tx.Exec(t.Context(), "SELECT FROM semel_record WHERE place = $1 FOR UPDATE", placeOf(&k)); err != nil || tag.RowsAffected() != 1 {
		t.Fatal(tag, err)
	}
	return func() { _ = tx.Rollback(context.Background()) }
}

// waiting waits until n backends wait for a lock in this test's schema.
func waiting(t testing.TB, db *DB, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		var got int
		err := db.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database() AND application_name = $1`, appOf(db)).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if got >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d backends wait for a lock, wanted %d", got, n)
		}
	}
}

// appOf is the name by which this database's connections are known: openFor gives each its own.
func appOf(db *DB) string { return db.pool.Config().ConnConfig.RuntimeParams["application_name"] }

// TestTokenDrawnAfterLock is protocol section 2, NEXT: a token that was drawn before the wait for the row lock could be
// smaller than that of the transaction that was waited for.
func TestTokenDrawnAfterLock(t *testing.T) {
	db := openFor(t, Options{LockWait: 2 * time.Minute})
	s := db.Store()
	k := testKeys("k%d", 1)[0]
	mustClaim(t, s, claimOf(k, time.Millisecond))
	time.Sleep(3 * time.Millisecond) // the lease ends
	release := lockRow(t, db, k)
	defer release()
	type result struct {
		g   []driver.Grant
		err error
	}
	got := make(chan result, 1)
	go func() {
		g, err := s.Claim(t.Context(), claimOf(k, long))
		got <- result{g, err}
	}()
	waiting(t, db, 1)
	var drawn uint64
	var at time.Time
	if err := db.pool.QueryRow(t.Context(), "SELECT max(nextval('semel_token')), clock_timestamp() FROM generate_series(1, 1000)").
		Scan(&drawn, &at); err != nil {
		t.Fatal(err)
	}
	release()
	a := <-got
	if a.err != nil || a.g[0].Verdict != driver.Acquired || a.g[0].Takeovers != 1 {
		t.Fatalf("the claim returned %+v, %v", a.g, a.err)
	}
	if a.g[0].Hold.Token <= drawn {
		t.Errorf("token %d was drawn before the lock was had: %d had been drawn by then", a.g[0].Hold.Token, drawn)
	}
	if r, _, err := s.Record(t.Context(), k); err != nil || r.LeaseUntil.Before(at.Add(long)) {
		t.Errorf("the lease until %v was counted from before the lock was had (%v), %v", r.LeaseUntil, at, err)
	}
}

// TestFM47_OpenTransactionOfOneKey: a key that a frozen worker's transaction holds is busy after LockWait, and no other
// key of the call waits with it.
func TestFM47_OpenTransactionOfOneKey(t *testing.T) {
	db := openFor(t, Options{LockWait: 200 * time.Millisecond})
	s := db.Store()
	ks := testKeys("k%d", 40)
	tx, _, err := s.Begin(t.Context(), claimsOf(ks[7:9], long)...)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	gs, err := s.Claim(t.Context(), claimsOf(ks, long)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range gs {
		want := driver.Acquired
		if i == 7 || i == 8 {
			want = driver.Busy
		}
		if g.Verdict != want || g.Err != nil || want == driver.Busy && (g.Wait <= 0 || g.Wait > time.Second) {
			t.Errorf("key %d returned %v (wait %v, %v), wanted %v", i, g.Verdict, g.Wait, g.Err, want)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the claim took %v", took)
	}
	// The same for a transaction that opens, and for the ends of attempts.
	other, gs, err := s.Begin(t.Context(), claimsOf(testKeys("k%d", 9)[7:], long)...)
	if err != nil || other != nil || gs[0].Verdict != driver.Busy || gs[1].Verdict != driver.Busy {
		t.Errorf("begin returned %v, %+v, %v", other, gs, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, claimsOf(ks[7:9], long)...)
}

// TestFM47_LockedRecord: ends of attempts and commits whose records somebody has locked do not keep the others waiting.
func TestFM47_LockedRecord(t *testing.T) {
	db := openFor(t, Options{LockWait: 100 * time.Millisecond})
	s := db.Store()
	ks := testKeys("k%d", 10)
	gs := mustClaim(t, s, claimsOf(ks, long)...)
	release := lockRow(t, db, ks[3])
	defer release()
	holds, fs, ws := make([]driver.Hold, len(gs)), make([]driver.Finish, 5), make([]driver.Work, 10)
	for i, g := range gs {
		holds[i] = g.Hold
		ws[i] = driver.Work{Finish: completion(g), Effects: effectFor(ks[i].Raw)}
		if i < len(fs) {
			fs[i] = completion(g)
		}
	}
	check := func(what string, out []driver.Outcome, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, o := range out {
			want := driver.Applied
			if i == 3 {
				want = driver.Unknown
			}
			if o != want {
				t.Errorf("%s of item %d returned %v, wanted %v", what, i, o, want)
			}
		}
	}
	out, err := s.Extend(t.Context(), long, holds...)
	check("extend", out, err)
	out, err = s.Finish(t.Context(), fs...)
	check("finish", out, err)
	out, err = s.Commit(t.Context(), ws...)
	check("commit", out, err)
	if n := countLedger(t, db); n != 5 {
		t.Errorf("%d effects, wanted those of the five that were not finished before", n)
	}
	release()
	if out, err := s.Commit(t.Context(), ws...); err != nil || out[3] != driver.Applied {
		t.Errorf("the commit repeated returned %v, %v", out, err)
	}
	if n := countLedger(t, db); n != 6 {
		t.Errorf("%d effects, wanted six", n)
	}
}

func effectFor(id string) *driver.Statements {
	e := &driver.Statements{}
	e.Exec(addToLedger, id)
	return e
}

func countLedger(t testing.TB, db *DB) (n int) {
	t.Helper()
	if err := db.pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM ledger").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFM12_PurgeBetweenDrawAndInsert: 1. A draws a token. 2. B claims the key with the next one and completes it. 3. A
// sweep purges the record. 4. A inserts. The key's tokens must not go backwards.
func TestFM12_PurgeBetweenDrawAndInsert(t *testing.T) {
	for _, others := range []int{0, 2} { // a claim alone, and one among others
		t.Run(fmt.Sprintf("%d others", others), func(t *testing.T) { purgeBetweenDrawAndInsert(t, others) })
	}
}

func purgeBetweenDrawAndInsert(t *testing.T, others int) {
	db := openFor(t, Options{LockWait: 2 * time.Minute})
	s := db.Store()
	k := testKeys("k%d", 1)[0]
	a := claimOf(k, long)
	// A's row waits between 1 and 4: the trigger runs when the row is made and before it is in the index.
	execSQL(t, db, fmt.Sprintf(`CREATE FUNCTION hold_a() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.nonce = '%s' THEN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); END IF; RETURN NEW; END $$`, uuidText(a.Nonce)))
	execSQL(t, db, "CREATE TRIGGER hold_a BEFORE INSERT ON semel_record FOR EACH ROW EXECUTE FUNCTION hold_a()")
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtext(current_schema()))"); err != nil {
		t.Fatal(err)
	}
	got := make(chan []driver.Grant, 1)
	go func() {
		g, err := s.Claim(t.Context(), append([]driver.Claim{a}, claimsOf(testKeys("other%d", others), long)...)...)
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	waiting(t, db, 1)
	b := mustClaim(t, s, claimOf(k, long))[0]
	f := completion(b)
	f.Keep = 0
	if out, err := s.Finish(t.Context(), f); err != nil || out[0] != driver.Applied {
		t.Fatal(out, err)
	}
	if sum, _, err := s.Sweep(t.Context(), 0, 10); err != nil || sum.Purged != 1 {
		t.Fatal(sum, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := <-got; len(g) != 1+others || g[0].Verdict != driver.Acquired || g[0].Hold.Token <= b.Hold.Token {
		t.Errorf("token %+v after token %d, which was purged meanwhile", g, b.Hold.Token)
	}
}

// TestFM53_PlaceCollision: two keys with one place are an error, and nobody's record is taken for another's. The SHA-256 of
// the two consumers begin with the same 6 bytes.
func TestFM53_PlaceCollision(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	other, k := driver.Key{Consumer: "consumer-29561791", Raw: "k"}, driver.Key{Consumer: "consumer-34758398", Raw: "k"}
	if rowstore.PlaceOf(&other) != rowstore.PlaceOf(&k) {
		t.Fatal("the keys have two places")
	}
	mustClaim(t, s, claimOf(other, time.Millisecond))
	for range 2 { // live, then expired
		if gs, err := s.Claim(t.Context(), claimOf(k, long)); err != nil || !errors.Is(gs[0].Err, rowstore.ErrCollision) {
			t.Errorf("claim returned %+v, %v", gs, err)
		}
		time.Sleep(2 * time.Millisecond) // the lease ends
	}
	if _, _, err := s.Begin(t.Context(), claimOf(k, long)); err != nil {
		t.Errorf("begin: %v", err) // Grant.Err tells
	}
	if _, found, err := s.Record(t.Context(), k); found || err != nil {
		t.Errorf("record found %v, %v", found, err)
	}
	if _, o, err := s.Operate(t.Context(), driver.Operation{Kind: driver.ForceRelease, Key: k}); o != driver.Lost || err != nil {
		t.Errorf("operate returned %v, %v", o, err)
	}
	if seen, err := seenTx(t, s, k); seen || !errors.Is(err, rowstore.ErrCollision) {
		t.Errorf("SeenTx returned %v, %v", seen, err)
	}
	if r, found, err := s.Record(t.Context(), other); r.Key != other || !found || err != nil {
		t.Errorf("the record of the first key is %+v, found %v, %v", r, found, err)
	}
}

func seenTx(t testing.TB, s *Store, k driver.Key) (seen bool, err error) {
	t.Helper()
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	return s.SeenTx(t.Context(), tx, k, keep)
}

// TestFM53_DamagedKey: a record whose consumer is not that of its place is an error of its key alone.
func TestFM53_DamagedKey(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	long1 := strings.Repeat("long", 100)
	ks := []driver.Key{{Consumer: "test", Raw: "k"}, {Consumer: "test", Tenant: "t", Raw: long1}, {Consumer: "test", Raw: "whole"}}
	mustClaim(t, s, claimsOf(ks, long)...)
	for _, damage := range []string{"consumer = 'another'", `rest = '\x01' || coalesce(rest, place)`, `rest = '\xff'`} {
		tx, err := db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if tag, err := tx.Exec(t.Context(), "UPDATE semel_record SET "+damage+" WHERE place <> $1", placeOf(&ks[2])); err != nil || tag.RowsAffected() != 2 {
			t.Fatal(tag, err)
		}
		gs, err := s.ClaimTx(t.Context(), tx, claimsOf(ks, long)...)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range gs {
			if bad := i < 2; errors.Is(g.Err, driver.ErrUnreadable) != bad || !bad && g.Verdict != driver.Busy {
				t.Errorf("%s: the claim of %q returned %v, %v", damage, ks[i].Raw, g.Verdict, g.Err)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSameKeyTwice: a caller that names a key twice gets two grants.
func TestSameKeyTwice(t *testing.T) {
	s := openFor(t, Options{}).Store()
	k := testKeys("k%d", 1)[0]
	gs, err := s.Claim(t.Context(), claimOf(k, long), claimOf(k, long))
	if err != nil || gs[0].Verdict != driver.Acquired || gs[1].Verdict != driver.Busy {
		t.Fatalf("%+v, %v", gs, err)
	}
	stale := gs[0].Hold
	stale.Token--
	if out, err := s.Extend(t.Context(), long, stale, gs[0].Hold); err != nil || out[0] != driver.Lost || out[1] != driver.Applied {
		t.Errorf("extend returned %v, %v", out, err)
	}
	late := completion(gs[0])
	late.Hold.Token--
	out, err := s.Commit(t.Context(), driver.Work{Finish: late, Effects: effectFor("late")},
		driver.Work{Finish: completion(gs[0]), Effects: effectFor("first")}, driver.Work{Finish: completion(gs[0]), Effects: effectFor("again")})
	if err != nil || out[0] != driver.Lost || out[1] != driver.Applied || out[2] != driver.Applied {
		t.Errorf("commit returned %v, %v", out, err)
	}
	if n := countLedger(t, s.db); n != 1 {
		t.Errorf("%d effects", n)
	}
}

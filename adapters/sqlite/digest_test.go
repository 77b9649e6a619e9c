package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM71_AnOlderProgramPurges: a sweep of a program that knows of no digests leaves them too: the deleting statement does.
func TestFM71_AnOlderProgramPurges(t *testing.T) {
	clock := newClock()
	db := openFor(t, Options{clock: clock.now})
	s := db.Store()
	const keep = 400 * 24 * time.Hour
	if err := s.Remember(t.Context(), "c", keep); err != nil {
		t.Fatal(err)
	}
	var keys []driver.Key
	for i, f := range []driver.Finish{
		{Final: driver.Complete}, {Final: driver.Fail}, {Final: driver.Release, Ran: driver.MaybeApplied},
		{Final: driver.Release, Ran: driver.NotApplied}, {Final: driver.Complete},
	} {
		c := driver.Claim{Key: driver.Key{Consumer: "c", Raw: string(rune('a' + i))}, Nonce: driver.Nonce{1, byte(i)}, Lease: time.Minute}
		if i == 4 {
			c.Key.Consumer = "others"
		}
		keys = append(keys, c.Key)
		g := must(s.Claim(t.Context(), c))(t)
		f.Hold, f.Keep = g[0].Hold, time.Second
		if out := must(s.Finish(t.Context(), f))(t); out[0] != driver.Applied {
			t.Fatal(out)
		}
	}
	ended := clock.now()
	clock.advance(time.Hour)
	now := clock.now()
	for _, k := range keys { // what the sweep of schema 2 sends
		if _, err := db.SQL().ExecContext(t.Context(), "DELETE FROM semel_record WHERE hash = ? AND state IN (2, 3, 4) AND retain_until < ?",
			hash16(&k), now.UnixMicro()); err != nil {
			t.Fatal(err)
		}
	}
	want := []driver.State{driver.Completed, driver.FailedState, driver.Released, driver.Absent, driver.Absent}
	for i, d := range must(s.Remembered(t.Context(), keys...))(t) {
		if d.Found != (want[i] != driver.Absent) || d.State != want[i] {
			t.Errorf("%s: %+v, wanted %v", keys[i].Raw, d, want[i])
		}
		if d.Found && (!d.At.Equal(ended.Truncate(time.Hour).UTC()) || d.Until.Sub(ended) < keep || d.Until.Sub(now) > keep+24*time.Hour) {
			t.Errorf("%s: %+v; it ended at %v", keys[i].Raw, d, ended)
		}
	}
	// Filters that are filled read only what is recent: they learn of these, too.
	recent := map[driver.DigestHash]bool{}
	err := s.ScanDigests(t.Context(), true, func(h driver.DigestHash, _ time.Time) error { recent[h] = true; return nil })
	for i, k := range keys {
		if recent[k.Digest()] != (want[i] != driver.Absent) {
			t.Errorf("%s: among the recent digests %v, %v", k.Raw, recent[k.Digest()], err)
		}
	}
}

// TestDigestsAreSmall: what a digest takes on disk.
func TestDigestsAreSmall(t *testing.T) {
	db := openFor(t, Options{})
	const n = 50_000
	if _, err := db.SQL().ExecContext(t.Context(), `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?)
		INSERT INTO semel_digest (hash, meta) SELECT randomblob(16), (55000 + i % 100) << 16 | 2600 FROM c`, n); err != nil {
		t.Fatal(err)
	}
	st := must(db.Store().DigestStats(t.Context()))(t)
	if st.Count != n || st.Bytes == 0 || st.Bytes/n > 45 {
		t.Errorf("%d digests take %d bytes: %d each", st.Count, st.Bytes, st.Bytes/n)
	}
	t.Logf("%.1f bytes a digest", float64(st.Bytes)/n)
	seen := map[driver.DigestHash]bool{}
	err := db.Store().ScanDigests(t.Context(), false, func(h driver.DigestHash, until time.Time) error {
		if seen[h] = true; until.Year() != 2027 {
			t.Fatalf("%x is kept until %v", h, until)
		}
		return nil
	})
	if err != nil || len(seen) != n {
		t.Errorf("the scan found %d, %v", len(seen), err)
	}
}

// TestUpgradeTo3: a file of schema 2 gets the tables of digests, and keeps its records.
func TestUpgradeTo3(t *testing.T) {
	o, path := oldProgram(t)
	o.exec(schema0002)
	h := o.claim("k")
	if !o.complete(h) {
		t.Fatal("not completed")
	}
	if from, to, err := Migrate(t.Context(), path); from != 2 || to != schemaVersion || err != nil {
		t.Fatalf("migrated from %d to %d, %v", from, to, err)
	}
	db := must(Open(t.Context(), filepath.Clean(path), Options{Create: true}))(t)
	defer func() { _ = db.Close() }()
	if r, ok, err := db.Store().Record(t.Context(), h.Key); err != nil || !ok || r.State != driver.Completed {
		t.Errorf("the record after the upgrade: %+v, %v, %v", r, ok, err)
	}
	if err := db.Store().Remember(t.Context(), "c", time.Hour); err != nil {
		t.Error(err)
	}
}

package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// TestViewsDecodeKeys: the views name tenant and key, which are in the place of the record, or in rest if they are long.
func TestViewsDecodeKeys(t *testing.T) {
	db := open(t)
	s, ctx := db.Store(), t.Context()
	var want []string
	for _, tenant := range []string{"", "t", "tenant/ä", strings.Repeat("a", 127), strings.Repeat("b", 128), strings.Repeat("c", 232), strings.Repeat("d", 400)} {
		for _, raw := range []string{"k", "order-0000000001", "ключ", strings.Repeat("x", 118), strings.Repeat("y", 600)} {
			k := driver.Key{Consumer: "orders", Tenant: tenant, Raw: raw}
			g := must(s.Claim(ctx, driver.Claim{Key: k, Nonce: nonce(), Lease: time.Minute}))(t)[0]
			if g.Verdict != driver.Acquired {
				t.Fatalf("%+v: %v, %v", k, g.Verdict, g.Err)
			}
			if r, found, err := s.Record(ctx, k); err != nil || !found || r.Key != k {
				t.Errorf("the record of %+v: %+v, %v", k, r.Key, err)
			}
			if err := s.AddDuplicates(ctx, driver.Duplicate{Key: k, MessageID: "m", Decision: "replayed"}); err != nil {
				t.Fatal(err)
			}
			must(s.WriteSteps(ctx, g.Hold, driver.StepWrite{Kind: driver.RegisterStep, Name: "a"}))(t)
			want = append(want, "orders|"+tenant+"|"+raw)
		}
	}
	slices.Sort(want)
	for _, view := range []string{"semel_records", "semel_duplicates", "semel_steps"} {
		got, err := texts(db.reader, "SELECT consumer || '|' || tenant || '|' || key FROM "+view)
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d of %d keys: %.300q, %v", view, len(got), len(want), got, err)
		}
	}
}

// TestViewOfRecords: columns that most records leave out have their values in the view.
func TestViewOfRecords(t *testing.T) {
	c := newClock()
	db := openFor(t, Options{clock: c.now})
	s, ctx := db.Store(), t.Context()
	row := func(want string) {
		t.Helper()
		got, err := texts(db.reader, `SELECT state || ' ' || takeover || ' ' || attempt || ' ' || failures || ' ' || generation || ' ' || unknown || ' ' ||
			created_at || ' ' || updated_at || ' ' || coalesce(lease_until, '-') || ' ' || coalesce(retry_at, '-') || ' ' || coalesce(completed_at, '-')
			|| ' ' || coalesce(retain_until, '-') || ' ' || reason || ' ' || coalesce(ended, '-') FROM semel_records`)
		if err != nil || len(got) != 1 || strings.ReplaceAll(got[0], "2026-01-02 ", "") != want {
			t.Errorf("%q, wanted %q, %v", got, want, err)
		}
	}
	h := acquire(t, s, "k")
	row("IN_PROGRESS resume 1 0 1 0 00:00:00 00:00:00 00:01:00 - - -  -")
	end := func(f driver.Finish) {
		t.Helper()
		f.Hold = h
		if out := must(s.Finish(ctx, f))(t); out[0] != driver.Applied {
			t.Fatal(out)
		}
	}
	c.advance(time.Second)
	end(driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, RetryAfter: time.Second, Keep: time.Hour, Reason: "again"})
	row("RELEASED resume 1 1 1 1 00:00:00 00:00:01 - 00:00:02 - 01:00:02 again -")
	c.advance(2 * time.Second)
	h = acquire(t, s, "k")
	end(driver.Finish{Final: driver.Complete, Keep: time.Hour})
	row("COMPLETED resume 2 1 1 0 00:00:00 00:00:03 - - 00:00:03 01:00:03  -")
	if err := s.SetLongTerm(ctx, "c", time.Hour); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour + time.Second)
	if sum, _, err := s.Sweep(ctx, 0, 0); err != nil || sum.Expired != 1 {
		t.Fatal(sum, err)
	}
	row("EXPIRED resume 0 0 1 0 00:00:00 00:00:03 - - - 02:00:03  COMPLETED")
}

// TestCollisionOfPlaces: a record at the place of a key that is another consumer's stops that key alone (I12).
func TestCollisionOfPlaces(t *testing.T) {
	db := open(t)
	s, ctx := db.Store(), t.Context()
	h := acquire(t, s, "k")
	exec_(t, db, "UPDATE semel_record SET consumer = 'other'")
	g := must(s.Claim(ctx, claim("a"), claim("k"), claim("b")))(t)
	if !errors.Is(g[1].Err, rowstore.ErrCollision) || g[1].Verdict == driver.Acquired {
		t.Errorf("the claim of the key: %v, %v", g[1].Verdict, g[1].Err)
	}
	if g[0].Verdict != driver.Acquired || g[2].Verdict != driver.Acquired {
		t.Errorf("claims of other keys: %+v", g)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE consumer = 'other' AND token = ?", int64(h.Token)); n != 1 {
		t.Error("the record of the other consumer was written")
	}
	exec_(t, db, "UPDATE semel_record SET consumer = 'c'")
	if g := must(s.Claim(ctx, claim("k")))(t); g[0].Verdict != driver.Busy {
		t.Errorf("%v, %v", g[0].Verdict, g[0].Err)
	}
}

// TestCompletedRecordsAreShort: a completed record has few bytes, and completions split no page that claims have filled.
func TestCompletedRecordsAreShort(t *testing.T) {
	const n, most = 5000, 135
	c := newClock()
	c.advance(500 * time.Microsecond) // most claims have no whole millisecond
	db := openFor(t, Options{clock: c.now})
	s, ctx := db.Store(), t.Context()
	size := func() int {
		return count(t, db, "SELECT sum(pgsize) FROM dbstat WHERE name IN ('semel_record', 'semel_record_place')")
	}
	claims := make([]driver.Claim, n)
	for i := range claims {
		raw := fmt.Sprintf("order-%010d", i)
		claims[i] = driver.Claim{
			Key: driver.Key{Consumer: "orders", Raw: raw}, Nonce: nonce(), Lease: 27 * time.Second, DeliveryID: raw, BodyDigest: 1<<56 + driver.BodyDigest(i),
		}
	}
	var ends []driver.Finish
	for part := range slices.Chunk(claims, 100) {
		for _, g := range must(s.Claim(ctx, part...))(t) {
			ends = append(ends, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: 14 * 24 * time.Hour})
		}
	}
	before := size()
	c.advance(time.Second)
	for part := range slices.Chunk(ends, 100) {
		for _, o := range must(s.Finish(ctx, part...))(t) {
			if o != driver.Applied {
				t.Fatal(o)
			}
		}
	}
	if after := size(); after != before || after > most*n {
		t.Errorf("%d bytes a record, %d before they were completed; wanted %d at most", after/n, before/n, most)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE state <> 3 OR more IS NOT NULL"); n != 0 {
		t.Errorf("%d records are not plain", n)
	}
}

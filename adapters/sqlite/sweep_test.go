package sqlite

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM41_SweepAgainstTheTable does random operations and sweeps, and compares what each sweep leaves with DecideSweep
// on every record: the blocks that a sweep skips must have nothing for it.
func TestFM41_SweepAgainstTheTable(t *testing.T) {
	t.Run("purge", func(t *testing.T) { sweepAgainstTheTable(t, 0) })
	t.Run("expire", func(t *testing.T) { sweepAgainstTheTable(t, 20*time.Minute) })
}

func sweepAgainstTheTable(t *testing.T, period time.Duration) {
	t.Helper()
	c := newClock()
	db := openFor(t, Options{clock: c.now})
	s, ctx := db.Store(), t.Context()
	const horizon = 10 * time.Minute
	if err := s.SetLongTerm(ctx, "c", period); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(11, 5))
	holds := []driver.Hold{}
	swept := driver.Swept{}
	for round := range 60 {
		// Tokens jump, so that blocks fill up soon and later writes fall into known ones.
		if err := db.write(ctx, 1, func(t *txn) error { err := t.load(); t.use(t.token + 1500); return err }); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			cl := claim(fmt.Sprint(round, "-", i))
			cl.Lease = time.Minute
			cl.Takeover = driver.Takeover(rnd.IntN(3))
			holds = append(holds, must(s.Claim(ctx, cl))(t)[0].Hold)
		}
		for range 10 {
			h := holds[rnd.IntN(len(holds))]
			keep := time.Duration(rnd.IntN(30)) * time.Minute
			switch rnd.IntN(6) {
			case 0, 1:
				must(s.Finish(ctx, driver.Finish{Hold: h, Final: driver.Final(1 + rnd.IntN(4)), Keep: keep}))(t)
			case 2: // taken over, or again
				cl := claim(h.Key.Raw)
				cl.Lease = time.Minute
				if g := must(s.Claim(ctx, cl))(t)[0]; g.Verdict == driver.Acquired {
					holds = append(holds, g.Hold)
				}
			case 3:
				must(s.Extend(ctx, time.Minute, h))(t)
			case 4:
				as := []driver.State{driver.Completed, driver.FailedState, driver.Released}[rnd.IntN(3)]
				operate(t, s, driver.Operation{Kind: driver.Resolve, Key: h.Key, As: as, Keep: keep})
			case 5:
				operate(t, s, driver.Operation{Kind: driver.Redrive, Key: h.Key, Keep: keep})
			}
			if rnd.IntN(20) == 0 { // in a synchronous transaction, whose tokens are older
				x, g := begin(t, s, claim(fmt.Sprint("tx", round, rnd.Int())))
				holds = append(holds, g[0].Hold)
				if err := x.Commit(ctx, driver.Work{Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: keep}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.advance(time.Duration(rnd.IntN(6)) * time.Minute)
		for more := true; more; {
			var sum driver.Swept
			var err error
			limit := rnd.IntN(7)
			if sum, more, err = s.Sweep(ctx, horizon, limit); err != nil {
				t.Fatal(err)
			}
			if n := sum.Count(); limit > 0 && (n > limit || more && n != limit) {
				t.Fatalf("sweep of %d did %+v, more %v", limit, sum, more)
			}
			swept.Add(sum)
		}
		now := time.UnixMicro(c.now().UnixMicro())
		for _, r := range must(s.Records(ctx, driver.RecordFilter{}))(t) {
			if _, v := driver.DecideSweep(r, now, horizon, period); v != driver.SweepKeep {
				t.Fatalf("round %d: the sweep left a record in state %v, token %d, retained until %v at %v, verdict %d",
					round, r.State, r.Token, r.RetainUntil, now, v)
			}
		}
	}
	if swept.Purged < 50 || swept.Abandoned < 10 || (period > 0) != (swept.Expired > 50) {
		t.Errorf("the sweeps did no more than %+v", swept)
	}
	blocks := count(t, db, "SELECT count(*) FROM semel_block")
	used := count(t, db, "SELECT count(DISTINCT token >> 12) FROM semel_record")
	if blocks > used+1 {
		t.Errorf("%d blocks are known, %d have records", blocks, used)
	}
}

func operate(t *testing.T, s *Store, op driver.Operation) {
	t.Helper()
	if _, _, err := s.Operate(t.Context(), op); err != nil {
		t.Fatal(err)
	}
}

// TestSweepLooksAtDueBlocksOnly: with ten thousand retained records a further sweep reads the newest block and no more.
func TestSweepLooksAtDueBlocksOnly(t *testing.T) {
	c := newClock()
	db := openFor(t, Options{clock: c.now})
	s, ctx := db.Store(), t.Context()
	var claims []driver.Claim
	for i := range 12000 {
		claims = append(claims, claim(fmt.Sprint(i)))
	}
	var fs []driver.Finish
	for _, g := range must(s.Claim(ctx, claims...))(t) {
		fs = append(fs, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour})
	}
	must(s.Finish(ctx, fs...))(t)
	steps := func() (n int) {
		for from, end := int64(0), false; !end; n++ {
			if err := db.write(ctx, 1, func(t *txn) error {
				w := sweep{t: t, left: sweepStep, from: from}
				err := w.run()
				from, end = w.from, w.end
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if first, second := steps(), steps(); first != 3 || second != 1 {
		t.Errorf("first sweep %d blocks, second %d, want 3 and 1", first, second)
	}
	c.advance(2 * time.Hour)
	if sum, more, err := s.Sweep(ctx, 0, 0); err != nil || more || sum.Purged != 12000 {
		t.Errorf("swept %+v, %v, %v", sum, more, err)
	}
	if h := acquire(t, s, "0"); h.Token != 12001 {
		t.Errorf("token %d after the purge: the sequence restarted", h.Token)
	}
}

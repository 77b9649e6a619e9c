package keymigration_test

import (
	"context"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM41_LateBesideAcquired: one of two keys is EXPIRED and the other is new. The message is late, and the new record is
// released as one whose run never started, in a transaction too.
func TestFM41_LateBesideAcquired(t *testing.T) {
	ctx := context.Background()
	for _, inTx := range []bool{false, true} {
		for i, expired := range []string{"old", "new"} {
			db, clock := openDB()
			if err := db.Store().SetLongTerm(ctx, expired, 400*24*time.Hour); err != nil {
				t.Fatal(err)
			}
			g, err := db.Store().Claim(ctx, driver.Claim{Key: driver.Key{Consumer: expired, Raw: "a"}, Nonce: driver.Nonce{7}, Lease: modelLease})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Store().Finish(ctx, driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: modelKeep}); err != nil {
				t.Fatal(err)
			}
			clock.advance(modelKeep + time.Second)
			if swept, _, err := db.Store().Sweep(ctx, 0, 0); err != nil || swept.Expired != 1 {
				t.Fatal(swept, err)
			}
			s := honest(db.Store())
			c := driver.Claim{
				Key: driver.Key{Consumer: "old", Raw: "a"}, NewKey: driver.Key{Consumer: "new", Raw: "a"}, Nonce: driver.Nonce{1}, Lease: modelLease,
			}
			if inTx {
				var tx driver.Tx
				if tx, g, err = s.Begin(ctx, c); tx != nil {
					if err := tx.Rollback(ctx); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				g, err = s.Claim(ctx, c)
			}
			if err != nil || g[0].Verdict != driver.Late || g[0].Hold.Key.Consumer != expired || g[0].Reason == "" {
				t.Errorf("in a transaction %v, %s expired: %+v, %v", inTx, expired, g, err)
			}
			other := []string{"new", "old"}[i]
			r, there, err := db.Store().Record(ctx, driver.Key{Consumer: other, Raw: "a"})
			if err != nil || there && (r.State != driver.Released || r.Attempt != 0 || r.Unknown || r.Failures != 0) || !there && !inTx {
				t.Errorf("in a transaction %v, %s expired: the record of %s is %+v, %v", inTx, expired, other, r, err)
			}
		}
	}
}

package shapes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// claimers has n callers claim and complete e.N keys, one key per call, with nothing in between: claim mode as semel.Do
// uses it. The store gathers concurrent calls into batches. Done counts pairs, P50 is the median time of a pair.
func claimers(ctx context.Context, e *harness.Env, s driver.Store, n int) (harness.Sample, error) {
	return e.Callers(ctx, n, func(ctx context.Context) error { return claimOne(ctx, s) })
}

func claimOne(ctx context.Context, s driver.Store) error {
	c := newClaim()
	grants, err := s.Claim(ctx, c)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if err := acquired(&grants[0]); err != nil {
		return err
	}
	out, err := s.Finish(ctx, completion(&grants[0], retention))
	if err == nil && out[0] != driver.Applied {
		err = fmt.Errorf("it is %v", out[0])
	}
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}

// newClaim claims a key that nobody had before.
func newClaim() driver.Claim {
	c := driver.Claim{Key: driver.Key{Consumer: "orders", Raw: newID()}, Lease: 27 * time.Second}
	_, _ = rand.Read(c.Nonce[:]) // never fails
	return c
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func acquired(g *driver.Grant) error {
	if g.Err != nil || g.Verdict != driver.Acquired {
		return fmt.Errorf("the claim of a new key returned %v: %w", g.Verdict, g.Err)
	}
	return nil
}

// retention is how long records are kept.
const retention = 14 * 24 * time.Hour

func completion(g *driver.Grant, keep time.Duration) driver.Finish {
	return driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep}
}

package postgres

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

// counted counts statements outside of pipelines.
type counted struct{ n atomic.Int64 }

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (*counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestRoundTripsOfClaimsAtCommit: redeliveries with a record are decided by the look that first deliveries need. One without a
// record takes a second round trip.
func TestRoundTripsOfClaimsAtCommit(t *testing.T) {
	var queries counted
	db := openFor(t, Options{NoListen: true, MaxConns: 1, Configure: func(c *pgxpool.Config) { c.ConnConfig.Tracer = &queries }})
	s := db.Store()
	claims := func(ks []driver.Key, atCommit int) []driver.Claim {
		cs := claimsOf(ks, long)
		cs[atCommit].AtCommit = true
		return cs
	}
	ks := testKeys("k%d", 4) // two with a record, two without
	for _, g := range mustClaim(t, s, claimsOf(ks[:2], long)...) {
		if out, err := s.Finish(t.Context(), completion(g)); err != nil || out[0] != driver.Applied {
			t.Fatal(out, err)
		}
	}
	for _, c := range []struct {
		claims []driver.Claim
		trips  int64
	}{{claims(ks[:2], 0), 1}, {claims(ks[:3], 2), 1}, {claims(ks, 2), 2}} {
		before := queries.n.Load()
		grants, err := s.Claim(t.Context(), c.claims...)
		if got := queries.n.Load() - before; err != nil || got != c.trips {
			t.Fatalf("%d claims took %d round trips (%v), want %d", len(grants), got, err, c.trips)
		}
	}
}

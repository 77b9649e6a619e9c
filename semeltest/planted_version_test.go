package semeltest_test

import (
	"context"

	"github.com/semel-dev/semel/driver"
)

// versionBugs are mistakes of stores with versions.
func versionBugs() []bug {
	const cells, inTx = "FM62 version cells", "FM62 versions in transactions"
	asText := func(c *driver.Claim) {
		if c.Version != "" {
			c.Version = driver.TextVersion(c.Version.String())
		}
		if c.After != "" {
			c.After = driver.TextVersion(c.After.String())
		}
	}
	return []bug{
		{"versions are ignored", cells, without(func(c *driver.Claim) { c.Version, c.After = "", "" })},
		{"versions are compared as text", cells, without(asText)},
		{"gaps are ignored", cells, without(func(c *driver.Claim) { c.After = "" })},
		{"a version that cannot wait waits", cells, without(func(c *driver.Claim) { c.NoWait = false })},
		{"what came too late is stale", cells, func(s *planted) {
			s.grant = func(_ *planted, _ driver.Claim, g *driver.Grant) {
				if g.Verdict == driver.Late {
					g.Verdict = driver.Stale
				}
			}
		}},
		{"an older version takes over a newer one in flight (FM76)", cells, func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []driver.Claim) ([]driver.Grant, error) {
				d := append([]driver.Claim(nil), c...)
				for i := range d {
					r, _, err := s.Record(ctx, d[i].Key)
					if err != nil {
						return nil, err
					}
					if w := &r.Watermark; r.State == driver.InProgress && w.Applied < d[i].Version && d[i].Version < w.Running {
						d[i].Version = w.Running // the record takes it for the one that runs
					}
				}
				return s.store().Claim(ctx, d...)
			}
		}},
		{"transactions ignore versions", inTx, func(s *planted) {
			s.begin = func(s *planted, ctx context.Context, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				d := append([]driver.Claim(nil), c...)
				for i := range d {
					d[i].Version, d[i].After = "", ""
				}
				return s.store().Begin(ctx, d...)
			}
		}},
	}
}

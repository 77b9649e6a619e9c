package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

func (a *app) recordsSweep(f *recordFlags) *cobra.Command {
	var yes, dry bool
	horizon, limit := semel.DefaultRetention, 0
	c := &cobra.Command{
		Use: "sweep --store URL", Short: "Purge or expire records past their retention; park abandoned claims", Args: noArgs,
		Long: `sweep does now what every worker does once a minute. It removes records past their retention, or makes them EXPIRED if their
consumer has a --long-term period (which the store knows). It parks abandoned claims: a worker those of its own consumer after its
--retention, sweep those of its scope (the URL's queue, --consumer, or --all-consumers) after --horizon. Use it to park the claims
of a consumer that has no workers any more.`,
		RunE: f.with(false, func(cmd *cobra.Command, l *ledger, _ []string) (err error) {
			ctx := cmd.Context()
			sw, ok := driver.As[driver.Sweeper](l.store)
			if !ok {
				return output.Usage("store %s sweeps by itself", l.store.Features().Name)
			}
			var consumers []string
			if l.scope.consumer != "" {
				consumers = append(consumers, l.scope.consumer)
			}
			var total driver.Swept
			if dry {
				total, err = l.wouldSweep(ctx, horizon, consumers)
			} else if err = a.confirm(yes, "purge or expire the records that are past their retention"); err == nil {
				total, err = sweepAll(ctx, sw, horizon, limit, consumers)
			}
			if err != nil {
				return err
			}
			v := map[string]any{
				"purged": total.Purged, "expired": total.Expired, "abandoned": total.Abandoned, "lag_seconds": total.Lag.Seconds(), "dry_run": dry,
			}
			late := ""
			if total.Lag > 0 {
				late += fmt.Sprintf("; the retention of the oldest one ended %s ago", words.About(total.Lag))
			}
			expired := ""
			if total.Expired > 0 {
				expired = fmt.Sprintf(", %s %s", verb(dry, "expire", "expired"), words.Count(total.Expired, "record"))
			}
			return a.p.Line(v, "%s %s%s, %s %s%s", verb(dry, "purge", "purged"), words.Count(total.Purged, "record"), expired,
				verb(dry, "park", "parked"), words.Count(total.Abandoned, "abandoned claim"), late)
		}),
	}
	destructive(c, &yes, &dry)
	config.DurationVar(c.Flags(), &horizon, "horizon", "claims abandoned for longer are parked")
	c.Flags().IntVar(&limit, "limit", 0, "at most N (0: all)")
	return c
}

func sweepAll(ctx context.Context, sw driver.Sweeper, horizon time.Duration, limit int, consumers []string) (total driver.Swept, err error) {
	for {
		step := 1000
		if limit > 0 {
			step = min(step, limit-total.Count())
		}
		n, more, err := sw.Sweep(ctx, horizon, step, consumers...)
		total.Add(n)
		if err != nil {
			return total, fmt.Errorf("sweep: %w", err)
		}
		if !more || limit > 0 && total.Count() >= limit {
			return total, nil
		}
	}
}

// wouldSweep counts with the store's own decision.
func (l *ledger) wouldSweep(ctx context.Context, horizon time.Duration, consumers []string) (n driver.Swept, err error) {
	all, err := l.insp.Records(ctx, driver.RecordFilter{})
	if err != nil {
		return n, err
	}
	var periods map[string]time.Duration
	if lt, ok := driver.As[driver.LongTerm](l.store); ok {
		if periods, err = lt.LongTerms(ctx); err != nil {
			return n, err
		}
	}
	now := time.Now()
	for _, r := range all {
		switch _, v := driver.DecideSweep(r, now, horizon, periods[r.Key.Consumer], consumers...); v {
		case driver.SweepPurge:
			n.Purged++
			n.Overdue(now, r.RetainUntil)
		case driver.SweepExpire:
			n.Expired++
			n.Overdue(now, r.RetainUntil)
		case driver.SweepAbandon:
			n.Abandoned++
		case driver.SweepKeep:
		}
	}
	return n, nil
}

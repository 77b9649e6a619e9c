package semel

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
)

const (
	// minLongTerm is the least of Config.LongTerm. A shorter one is a mistake: a longer Retention replays besides.
	minLongTerm = 24 * time.Hour
	// longTermPause is the pause after a failed registration, longTermWait how long the first one may outlast its run.
	longTermPause = 5 * time.Second
	longTermWait  = 5 * time.Second
)

// resolveLongTerm refuses what a long-term period does not go with.
func (c *Config) resolveLongTerm() error {
	if c.LongTerm == 0 {
		return nil
	}
	name := c.Store.Features().Name
	switch _, ok := driver.As[driver.LongTerm](c.Store); {
	case c.LongTerm < minLongTerm:
		return &ConfigError{"LongTerm", fmt.Sprintf("is %s", driver.DurationText(c.LongTerm)), "use 0 for none, or 24h and more"}
	case c.Versions != nil:
		return &ConfigError{"LongTerm", "is set beside Versions, and an entity's latest version tells its late duplicates by itself",
			"leave LongTerm away, and raise Retention beyond the longest pause of an entity"}
	case !ok && c.Store.Features().Kind == "dynamodb":
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, and store %s has no EXPIRED records: time to live deletes items by itself", name),
			"raise Retention: on DynamoDB a whole record costs no more, and it still replays"}
	case !ok:
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, and store %s has no EXPIRED records", name),
			"use a store that has (memory, sqlite, postgres), or raise Retention"}
	}
	return nil
}

// setLongTerm registers the long-term period with the store, before every sweep: a store that was restored may have lost it. It
// retries until the store confirms it, because a sweep without it would purge what is to expire; false: ctx is done. The
// first call is carried out even when the run ends at once.
func (r *runner) setLongTerm(ctx context.Context, consumers []string, first bool) bool {
	lt, ok := driver.As[driver.LongTerm](r.cfg.Store)
	if r.cfg.LongTerm == 0 || !ok {
		return true
	}
	set := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, longTermWait)
		defer cancel()
		for _, c := range consumers {
			if err := lt.SetLongTerm(ctx, c, r.cfg.LongTerm); err != nil {
				return err
			}
		}
		return nil
	}
	now := ctx
	if first {
		now = context.WithoutCancel(ctx)
	}
	for err := set(now); err != nil; err = set(ctx) {
		r.cfg.Logger.Warn("the long-term period is not registered yet, and nothing is swept; it is tried again", logErr, err)
		if !idle.For(ctx, longTermPause) {
			return false
		}
	}
	return true
}

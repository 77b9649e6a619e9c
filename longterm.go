package semel

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/longterm"
)

// minLongTerm is the least of Config.LongTerm: digests are kept to the day.
const minLongTerm = 24 * time.Hour

// resolveLongTerm refuses what the long-term tier does not go with.
func (c *Config) resolveLongTerm() error {
	if c.LongTerm == 0 {
		return nil
	}
	switch _, ok := driver.As[driver.LongTerm](c.Store); {
	case c.LongTerm < minLongTerm:
		return &ConfigError{"LongTerm", fmt.Sprintf("is %s", driver.DurationText(c.LongTerm)), "use 0 for none, or 24h and more"}
	case c.Versions != nil:
		return &ConfigError{"LongTerm", "is set beside Versions, and an entity's latest version tells its late duplicates by itself",
			"leave LongTerm away, and raise Retention beyond the longest pause of an entity"}
	case !ok:
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, and store %s keeps no digests", c.Store.Features().Name),
			"use a store that does (memory, sqlite, postgres), or raise Retention"}
	}
	return nil
}

// remembering puts the long-term tier before the store that the engine claims by.
func (c *Consumer) remembering() {
	if c.cfg.LongTerm == 0 {
		return
	}
	lt, _ := driver.As[driver.LongTerm](c.cfg.Store) // resolveLongTerm has looked
	consumers := []string{c.cfg.Consumer}
	if f := c.cfg.Former; f != nil && f.Consumer != c.cfg.Consumer {
		consumers = append(consumers, f.Consumer)
	}
	c.tier = longterm.NewTier(lt, longterm.Options{
		Consumers: consumers, Keep: c.cfg.LongTerm, Retention: c.cfg.Retention, Logger: c.cfg.Logger,
	})
	c.records = longterm.New(c.records, c.tier)
}

// tellLongTerm counts what the tier did since this run began.
func (r *runner) tellLongTerm(s *Summary) {
	if r.tier == nil {
		return
	}
	n := r.tier.Stats()
	s.LongTermLookups, s.LongTermHits = n.Lookups-r.looked.Lookups, n.Hits-r.looked.Hits
	s.LongTermFalsePositives = n.FalsePositives - r.looked.FalsePositives
}

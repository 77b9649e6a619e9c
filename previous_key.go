package semel

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/keymigration"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// PreviousKey is how a consumer named its keys before the recipe, or its name, was changed. While it is set every message is
// claimed under both identities, so that workers of the old version and of the new one exclude each other, and what was done
// is known by either. Handlers, downstreams and dead letters see the previous identity; the new one alone is left when Former is
// removed. That is safe one horizon (Config.Retention) after the last worker that did not know the new identity has stopped;
// docs/patterns.md says what to look at before.
//
// A message is a duplicate while either identity says so: a recipe that tells apart what the previous one took for one act
// does so when Former is removed, not before. A message that only one recipe has a key for is claimed under that one.
type PreviousKey struct {
	// Consumer is the name of before. Defaults to the present one. Under one name the two recipes must never give two
	// messages the same text: a message whose new key is another's previous one is taken for done, and acked without an
	// effect. Where they can (two recipes of one number each, say), give the consumer a new name with the new key.
	Consumer string
	// Key is the recipe of before. Defaults to the present one.
	Key key.Func
}

// resolvePrevious fills in the defaults of Former, in a copy, and refuses what it does not go with.
func (c *Config) resolvePrevious() error {
	if c.PreviousKey == nil {
		return nil
	}
	f := *c.PreviousKey
	switch {
	case f.Key == nil && (f.Consumer == "" || f.Consumer == c.Consumer):
		return &ConfigError{"Former", "is set, and names nothing that was different", "give the Consumer or the Key of before, or leave it away"}
	case c.Versions != nil:
		return &ConfigError{"Former", "is set beside Versions, and an entity's latest version is kept under one key",
			"stop all workers, change the key, and start them again: the first message of each entity then takes effect whatever its version"}
	}
	if f.Consumer == "" {
		f.Consumer = c.Consumer
	}
	if f.Key == nil {
		f.Key = c.Key
	}
	c.PreviousKey = &f
	return nil
}

// claiming makes the store that the engine claims by: the configured one, or what claims two keys in it.
func (c *Consumer) claiming() error {
	c.records = c.cfg.Store
	if c.cfg.PreviousKey != nil {
		c.records = keymigration.New(c.cfg.Store, keymigration.Options{Keep: c.cfg.Retention, Lease: c.cfg.lease()})
	}
	c.committer, _ = driver.As[driver.Committer](c.records)
	c.transactor, _ = driver.As[driver.Transactor](c.records)
	c.joins = c.committer != nil && c.committer.Joins(c.cfg.Queue)
	_, commits := c.cfg.Handler.(transactional)
	if c.cfg.PreviousKey != nil && (commits || c.joins || c.emits()) && !keymigration.Together(c.cfg.Store) {
		return &ConfigError{"Former", fmt.Sprintf("is set, and store %s cannot complete two records and what commits with them in one write",
			c.store.Name), "use a HandlerFunc, or a store with transactions"}
	}
	return nil
}

// identify gives an arrival its two identities. missing is why the present recipe has no key for it; the previous one helps
// out where there just is none.
func (f *PreviousKey) identify(a *machine.Arrival, missing error) error {
	previous := driver.Key{Consumer: f.Consumer, Tenant: a.Key.Tenant}
	raw, err := f.Key(&a.Message)
	if err == nil {
		err = key.Check(raw)
	}
	previous.Raw = raw
	switch {
	case err != nil: // nobody ever claimed it by that
	case missing == nil && previous != a.Key:
		a.Key, a.NewKey = previous, a.Key
	case errors.Is(missing, key.ErrMissing):
		a.Key = previous
		return nil
	}
	return missing
}

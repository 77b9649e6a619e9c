package semel

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/keymigration"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// PreviousKey describes the keys that a consumer used before its key recipe or its name changed. While it is set, every
// message is claimed under both keys. Workers of the old and the new version then exclude each other, and a message that was
// completed under one key is known under the other. Handlers, downstreams and dead letters see the previous key.
//
// Remove PreviousKey one horizon (Config.Retention) after the last worker that did not know the new key has stopped.
// docs/patterns.md lists what to check first. From then on only the new key is used.
//
// A message is a duplicate if either key is a duplicate. If the new recipe distinguishes operations that shared one previous
// key, it takes effect when PreviousKey is removed. A message for which only one recipe has a key is claimed under that one.
type PreviousKey struct {
	// Consumer is the previous name. Defaults to the current one. If the name stays the same, the two recipes must not
	// produce the same text for two messages: a message whose new key equals the previous key of another counts as completed
	// and is acked without an effect. If they can collide (for example, both use a number), rename the consumer as well.
	Consumer string
	// Key is the previous recipe. Defaults to the current one.
	Key key.Func
}

// resolvePrevious fills in the defaults of PreviousKey, in a copy, and refuses combinations that cannot work.
func (c *Config) resolvePrevious() error {
	if c.PreviousKey == nil {
		return nil
	}
	f := *c.PreviousKey
	switch {
	case f.Key == nil && (f.Consumer == "" || f.Consumer == c.Consumer):
		return &ConfigError{"PreviousKey", "is set, but is not different from the current key", "set its Consumer or its Key, or remove it"}
	case c.Versions != nil:
		return &ConfigError{"PreviousKey", "is set together with Versions, but an entity's latest version is kept under one key",
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

// claiming sets up the store that the engine uses: the configured one, or a wrapper that claims two keys in it.
func (c *Consumer) claiming() error {
	c.records = c.cfg.Store
	if c.cfg.PreviousKey != nil {
		c.records = keymigration.New(c.cfg.Store, keymigration.Options{Keep: c.cfg.Retention, Lease: c.cfg.lease()})
	}
	c.committer, _ = driver.As[driver.Committer](c.records)
	c.transactor, _ = driver.As[driver.Transactor](c.records)
	c.joins = c.committer != nil && c.committer.Joins(c.cfg.Queue)
	_, commits := c.cfg.Handler.(transactional)
	if c.cfg.PreviousKey == nil || keymigration.Together(c.cfg.Store) {
		return nil
	}
	if c.joins = false; commits || c.emits() { // acks follow the two records
		return &ConfigError{"PreviousKey", fmt.Sprintf("is set, but store %s cannot complete two records and what commits with them in one write",
			c.store.Name), "use a HandlerFunc, or a store with transactions"}
	}
	return nil
}

// identify sets the two keys of an arrival. missing is the error of the current recipe, if it has no key for the message. The
// previous key is used alone if the current one is just absent.
func (f *PreviousKey) identify(a *machine.Arrival, missing error) error {
	previous := driver.Key{Consumer: f.Consumer, Tenant: a.Key.Tenant}
	raw, err := f.Key(&a.Message)
	if err == nil {
		err = key.Check(raw)
	}
	previous.Raw = raw
	switch {
	case err != nil: // it was never claimed under a previous key
	case missing == nil && previous != a.Key:
		a.Key, a.NewKey = previous, a.Key
	case errors.Is(missing, key.ErrMissing):
		a.Key = previous
		return nil
	}
	return missing
}

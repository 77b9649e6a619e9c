package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// Keeps says how long a record is kept by how its message ended; 0 = Config.Keep.
type Keeps struct{ Completed, Failed, Dropped, Released time.Duration }

// keep is how long the record of an attempt is kept that ends so. Of a parked one the store keeps the record forever;
// what a late completion leaves is kept as a completed one.
func (c *Config) keep(f driver.Final, dropped bool) time.Duration {
	d := c.Keeps.Completed
	switch {
	case f == driver.Fail:
		d = c.Keeps.Failed
	case f == driver.Release:
		d = c.Keeps.Released
	case dropped:
		d = c.Keeps.Dropped
	}
	if d == 0 {
		return c.Keep
	}
	return d
}

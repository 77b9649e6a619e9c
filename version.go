package semel

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// Version orders the messages of one key. Make one with IntVersion, DecimalVersion, TimeVersion, SequencerVersion or
// TextVersion of package driver. Versions of different kinds cannot be compared.
type Version = driver.Version

// Version returns the version of this attempt's message, or "" if Config.Versions is nil. A handler that writes to a resource
// outside of the record's transaction must let that resource compare versions, so that a late run of an older version
// cannot overwrite a newer one.
func (a *Attempt) Version() Version { return a.hold.Version }

// age returns how long ago a message was sent, for Config.MaxAge and for messages that wait for their predecessor.
func (c *Consumer) age(m *Message) time.Duration {
	if c.cfg.MaxAge <= 0 && c.cfg.park() <= 0 || m.SentAt.IsZero() {
		return machine.UnknownAge
	}
	return time.Since(m.SentAt)
}

// resolveVersions refuses versions without an entity. It fingerprints the body by default, because one version is one payload.
func (c *Config) resolveVersions() error {
	switch {
	case c.Versions.Of == nil:
		return &ConfigError{"Versions", "has no function that reads the version of a message", "use ByVersion, ByTimestamp or BySequence"}
	case c.Versions.Park < 0:
		return &ConfigError{"Versions", "has a negative Park", "use 0 to accept gaps"}
	case c.Key == nil:
		return &ConfigError{"Key", "is not set, but a version needs the entity that it is a version of",
			"name the entity: key.FromJSON(\"/order_id\")"}
	}
	if c.Fingerprint == nil {
		c.Fingerprint = key.FingerprintBody()
	}
	return nil
}

func (c *Config) park() time.Duration {
	if c.Versions == nil {
		return 0
	}
	return c.Versions.Park
}

// versionsGuarantee turns the guarantee for keys that take effect once into the one for versions.
func (c *Consumer) versionsGuarantee(p *Guarantees) {
	v := c.cfg.Versions
	if v == nil {
		return
	}
	if c.tx != nil {
		p.Effects = "Each version of a key takes effect at most once, and no older version takes effect after a newer one, in what " +
			"commits with the record; older ones are skipped. Anything else the handler does can happen more than once and late."
	} else {
		p.Effects += " Each key here is one version; older versions do not run once a newer one was applied or may have been, but " +
			"an interrupted run of an older one can still write after a newer one unless the resource itself compares the version."
	}
	p.Mode = "D over " + p.Mode
	for i, a := range p.Assumptions {
		p.Assumptions[i] = strings.Replace(a, "duplicates come within", "duplicates and older versions come within", 1)
	}
	p.Assumptions = append(p.Assumptions,
		"messages carry states, never changes: older versions are skipped for good")
	if v.Clocked {
		p.Assumptions = append(p.Assumptions, "versions are the senders' clocks: an update stamped by a clock that is behind is skipped")
	}
	if v.Park > 0 {
		p.Assumptions = append(p.Assumptions,
			fmt.Sprintf("a version waits %s at most for the one before it; what it passed over becomes a dead letter", v.Park))
	}
}

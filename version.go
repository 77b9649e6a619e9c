package semel

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// Version orders the messages of one key. IntVersion, DecimalVersion, TimeVersion, SequencerVersion and TextVersion of
// package driver make them; versions of different kinds are never compared.
type Version = driver.Version

// Version is the version of this attempt's message; "" when Config.Versions is nil. A resource that is written outside
// of the record's transaction compares it itself, so that a late older run cannot overwrite a newer one.
func (a *Attempt) Version() Version { return a.hold.Version }

// age is how old a message is: for those that wait for their predecessor, and for Config.MaxAge.
func (c *Consumer) age(m *Message) time.Duration {
	if c.cfg.MaxAge <= 0 && c.cfg.park() <= 0 || m.SentAt.IsZero() {
		return machine.UnknownAge
	}
	return time.Since(m.SentAt)
}

// resolveVersions refuses versions without an entity, and compares payloads: one version is one payload.
func (c *Config) resolveVersions() error {
	switch {
	case c.Versions.Of == nil:
		return &ConfigError{"Versions", "has no function that takes the version out of a message", "use ByVersion, ByTimestamp or BySequence"}
	case c.Versions.Park < 0:
		return &ConfigError{"Versions", "has a negative Park", "use 0 to accept gaps"}
	case c.Key == nil:
		return &ConfigError{"Key", "is not given, and a version needs the entity that it is a version of",
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

// versionsGuarantee turns the promise for keys that take effect once into the one for versions.
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

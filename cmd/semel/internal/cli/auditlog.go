package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// moment is a flag that is a time, or how long ago.
type moment struct{ at time.Time }

func (m *moment) Set(s string) error {
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			m.at = t.UTC()
			return nil
		}
	}
	d, err := config.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is neither a time (2026-01-31T12:00:00Z, 2026-01-31) nor a duration ago (24h, 7d)", s)
	}
	m.at = time.Now().Add(-d).UTC()
	return nil
}

func (m *moment) String() string { return rfc3339(m.at) }

// Type names the flag's value in help texts.
func (m *moment) Type() string { return "time|ago" }

// entry is the printed form of an audit log entry.
type entry struct {
	At         string `json:"at"`
	By         string `json:"by"`
	Kind       string `json:"kind"`
	Key        string `json:"key"`
	Consumer   string `json:"consumer"`
	Tenant     string `json:"tenant,omitempty"`
	Generation uint32 `json:"generation"` // before
	Token      uint64 `json:"token"`      // before
	From       string `json:"from"`
	To         string `json:"to"`
	Verified   bool   `json:"verified,omitempty"`
	Renewed    bool   `json:"new_generation,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

func entryOf(e driver.AuditEntry) entry {
	return entry{
		At: rfc3339(e.At), By: e.By, Kind: e.Kind.String(), Key: e.Key.Raw, Consumer: e.Key.Consumer, Tenant: e.Key.Tenant,
		Generation: e.Generation, Token: e.Token, From: e.From.String(), To: e.To.String(), Verified: e.Verified,
		Renewed: e.Renewed, Reason: e.Reason,
	}
}

// auditLog prints what operators did.
func (a *app) auditLog(ctx context.Context, f *auditFlags) (err error) {
	l, err := f.open(ctx, true)
	if err != nil {
		return err
	}
	defer closing(&err, l.set)
	log, ok := driver.As[driver.AuditLog](l.store)
	if !ok {
		return output.Usage("store %s has no audit log", l.store.Features().Name)
	}
	filter := driver.AuditFilter{Consumer: l.scope.consumer, Since: f.since.at}
	if f.key != "" {
		r, err := l.find(ctx, f.key)
		if err != nil {
			return err
		}
		filter.Key = r.Key
	}
	found, err := log.Audit(ctx, filter)
	if err != nil {
		return err
	}
	var all []entry
	for _, e := range found {
		if (f.tenant == "" || e.Key.Tenant == f.tenant) && (f.until.at.IsZero() || !e.At.After(f.until.at)) {
			all = append(all, entryOf(e))
		}
	}
	if f.limit > 0 && len(all) > f.limit {
		all = all[len(all)-f.limit:]
	}
	head := []string{"at", "by", "did", "key", "consumer", "from", "to", "token", "reason"}
	return output.List(a.p, all, head, func(e entry) []any {
		return []any{e.At, e.By, e.Kind, e.Key, e.Consumer, e.From, e.To, e.Token, e.Reason}
	})
}

// byFlag adds the flag of commands that leave an entry in the audit log.
func byFlag(c *cobra.Command, by *string) {
	c.Flags().StringVar(by, "by", "", "operator's name in the audit log (default: user@host)")
}

// actor is the operator's name in the audit log: --by, else user@host.
func actor(by string) string {
	if by != "" {
		return by
	}
	name := "operator"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}

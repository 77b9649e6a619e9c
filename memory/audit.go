package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// auditLine is an entry of the audit log with its sequence number.
type auditLine struct {
	driver.AuditEntry
	seq uint64
}

// addAudit adds an entry. It is removed with its record.
func (s *Store) addAudit(e driver.AuditEntry) {
	s.auditSeq++
	s.audit[e.Key] = append(s.audit[e.Key], auditLine{AuditEntry: e, seq: s.auditSeq})
}

// LogRefusal stores the entry of refused requests. See [driver.RefusalLog].
func (s *Store) LogRefusal(ctx context.Context, id string, e driver.AuditEntry) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("log a refused request: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.auditSeq++
	s.audit[driver.Key{Consumer: e.Key.Consumer, Tenant: "refused requests", Raw: id}] = []auditLine{{AuditEntry: e, seq: s.auditSeq}}
	return nil
}

// Audit lists the audit log, oldest first. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list the audit log: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var lines []auditLine
	for key, of := range s.audit {
		if f.Key != (driver.Key{}) && f.Key != key || f.Consumer != "" && f.Consumer != key.Consumer {
			continue
		}
		for _, l := range of {
			if !l.At.Before(f.Since) {
				lines = append(lines, l)
			}
		}
	}
	slices.SortFunc(lines, func(a, b auditLine) int { return cmp.Compare(a.seq, b.seq) })
	if f.Limit > 0 && len(lines) > f.Limit {
		lines = lines[len(lines)-f.Limit:]
	}
	out := make([]driver.AuditEntry, len(lines))
	for i, l := range lines {
		out[i] = l.AuditEntry
	}
	return out, nil
}

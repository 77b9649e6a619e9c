package sqlite

import (
	"context"
	"slices"

	"github.com/semel-dev/semel/driver"
)

const (
	// sqlAuditAdd adds a line. 1 hash 2 at 3 who 4 kind 5 was 6 became 7 generation 8 token 9 verified 10 renewed 11 consumer
	// 12 tenant 13 key 14 reason
	sqlAuditAdd = `INSERT INTO semel_audit (hash, at, who, kind, was, became, generation, token, verified, renewed, consumer,
  tenant, key, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	auditColumns = "at, who, kind, was, became, generation, token, verified, renewed, consumer, tenant, key, reason"
	// sqlAudit lists lines, the latest first. ?1 consumer ('' = all) ?2 since ?3 limit
	sqlAudit = "SELECT " + auditColumns + ` FROM semel_audit WHERE (?1 = '' OR consumer = ?1) AND at >= ?2
  ORDER BY seq DESC LIMIT ?3`
	// sqlAuditKey lists those of one record. ?4 hash
	sqlAuditKey = "SELECT " + auditColumns + ` FROM semel_audit WHERE hash = ?4 AND (?1 = '' OR consumer = ?1) AND at >= ?2
  ORDER BY seq DESC LIMIT ?3`
)

// addAudit adds a line to the operators' trail.
func (t *txn) addAudit(hash []byte, e *driver.AuditEntry) error {
	_, err := t.s.exec(sqlAuditAdd, hash, micro(e.At), e.By, int64(e.Kind), int64(e.From), int64(e.To), int64(e.Generation),
		int64(e.Token), flag(e.Verified), flag(e.Renewed), e.Key.Consumer, e.Key.Tenant, e.Key.Raw, e.Reason)
	return err
}

// Audit lists the operators' trail, oldest first. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	limit, query := f.Limit, sqlAudit
	if limit <= 0 {
		limit = -1
	}
	args := []any{f.Consumer, micro(f.Since), limit}
	if f.Key != (driver.Key{}) {
		query, args = sqlAuditKey, append(args, hash16(&f.Key))
	}
	var out []driver.AuditEntry
	err := s.db.read(ctx, "list the audit trail", func(v []any) error {
		e := driver.AuditEntry{
			At: fromMicro(integer(v[0])), By: text(v[1]), Kind: driver.OperationKind(integer(v[2])),
			From: driver.State(integer(v[3])), To: driver.State(integer(v[4])), Generation: uint32(integer(v[5])),
			Token: uint64(integer(v[6])), Verified: integer(v[7]) != 0, Renewed: integer(v[8]) != 0,
			Key: driver.Key{Consumer: text(v[9]), Tenant: text(v[10]), Raw: text(v[11])}, Reason: text(v[12]),
		}
		out = append(out, e)
		return nil
	}, query, args...)
	slices.Reverse(out)
	return out, err
}

package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

const (
	// sqlAuditAdd adds a line. 1 hash 2 at 3 who 4 kind 5 was 6 became 7 generation 8 token 9 verified 10 renewed 11 consumer
	// 12 tenant 13 key 14 reason
	sqlAuditAdd = `INSERT INTO semel_audit (hash, at, who, kind, was, became, generation, token, verified, renewed, consumer,
  tenant, key, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

	// sqlAudit lists lines, the latest first. 1 hash (NULL = all) 2 consumer (NULL = all) 3 since (NULL = ever) 4 limit
	// (NULL = none)
	sqlAudit = `SELECT at, who, kind, was, became, generation, token, verified, renewed, consumer, tenant, key, reason
  FROM semel_audit WHERE ($1::uuid IS NULL OR hash = $1) AND ($2::bytea IS NULL OR consumer = $2)
    AND ($3::timestamptz IS NULL OR at >= $3) ORDER BY seq DESC LIMIT $4::bigint`
)

// addAudit adds the statement that adds a line to the operators' trail.
func (p *pipeline) addAudit(hash [16]byte, e *driver.AuditEntry) {
	p.exec("write the audit trail", sqlAuditAdd, uuid(hash), e.At, []byte(e.By), int16(e.Kind), int16(e.From), int16(e.To),
		int32(e.Generation), int64(e.Token), e.Verified, e.Renewed, []byte(e.Key.Consumer), []byte(e.Key.Tenant),
		[]byte(e.Key.Raw), bytesOrNull(e.Reason))
}

// Audit lists the operators' trail, oldest first. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) (out []driver.AuditEntry, err error) {
	var (
		hash  any
		since *time.Time
		limit *int64
	)
	if f.Key != (driver.Key{}) {
		hash = uuid(hashOf(&f.Key))
	}
	if !f.Since.IsZero() {
		since = &f.Since
	}
	if f.Limit > 0 {
		n := int64(f.Limit)
		limit = &n
	}
	err = s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlAudit, hash, bytesOrNull(f.Consumer), since, limit)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, scanAudit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", err)
	}
	slices.Reverse(out)
	return out, nil
}

func scanAudit(row pgx.CollectableRow) (e driver.AuditEntry, err error) {
	var (
		who, consumer, tenant, key, reason []byte
		kind, was, became                  int16
		generation                         int32
		token                              int64
	)
	err = row.Scan(&e.At, &who, &kind, &was, &became, &generation, &token, &e.Verified, &e.Renewed, &consumer, &tenant, &key,
		&reason)
	if err != nil {
		return e, err
	}
	e.By, e.Reason, e.Kind = string(who), string(reason), driver.OperationKind(kind)
	e.From, e.To = driver.State(was), driver.State(became)
	e.Generation, e.Token = uint32(generation), uint64(token)
	e.Key = driver.Key{Consumer: string(consumer), Tenant: string(tenant), Raw: string(key)}
	return e, nil
}

package rowstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// query builds a SELECT. Unused conditions are left out, so that the database plans for the others only.
type query struct {
	strings.Builder
	args []any
	any  bool // there is a condition
}

func (q *query) where(condition string, args ...any) {
	word := " AND "
	if !q.any {
		word = " WHERE "
	}
	q.any = true
	q.WriteString(word)
	q.WriteString(condition)
	q.args = append(q.args, args...)
}

func (q *query) limit(n int) {
	if n > 0 {
		q.WriteString(" LIMIT ?")
		q.args = append(q.args, int64(n))
	}
}

// records begins a query of records: of the columns of the layout, and others behind them.
func (s *Store) records(f driver.RecordFilter, others ...string) *query {
	q := &query{}
	q.WriteString("SELECT " + strings.Join(append([]string{s.layout.Columns}, others...), ", ") + " FROM semel_record r")
	if f.State == driver.Uncertain {
		q.WriteString(" JOIN (SELECT place AS case_place FROM semel_case WHERE state = 5) c ON c.case_place = r.place")
	}
	if f.Consumer != "" {
		q.where("r.consumer = ?", f.Consumer)
	}
	if f.State != driver.Absent {
		q.where("r.state = " + strconv.Itoa(int(f.State)))
	}
	return q
}

// Record reads one record. ok is false if there is none.
func (s *Store) Record(ctx context.Context, k driver.Key) (r driver.Record, ok bool, err error) {
	q := s.records(driver.RecordFilter{})
	q.where("r.place = ?", PlaceOf(&k))
	err = s.db.Read(ctx, func(row Row) (err error) {
		r, err = s.layout.Record(row)
		ok = err == nil && r.Key == k
		return err
	}, q.String(), q.args...)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("read the record of key %q: %w", k.Raw, err)
	}
	if !ok {
		r = driver.Record{}
	}
	return r, ok, nil
}

// Records lists records, oldest first unless f says otherwise. See [driver.RecordInspector].
func (s *Store) Records(ctx context.Context, f driver.RecordFilter) (out []driver.Record, err error) {
	q := s.records(f)
	if f.Newest {
		q.WriteString(" ORDER BY r.updated_at DESC, r.token DESC")
	} else {
		q.WriteString(" ORDER BY r.created_at, r.token")
	}
	q.limit(f.Limit)
	var left driver.LeftOut
	err = s.db.Read(ctx, func(row Row) error {
		r, err := s.layout.Record(row)
		if err == nil {
			out = append(out, r)
		}
		return left.Add(err)
	}, q.String(), q.args...)
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	return out, Wrap(left.Err(), "list records")
}

// scanPage is how many records a scan reads at once: a long read delays the cleanup of old row versions.
const scanPage = 1000

// ScanRecords calls each with every record that f selects, a page at a time, in the order of their places, which do not
// change while a record exists. See [driver.RecordScanner].
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	page, last := make([]driver.Record, 0, scanPage), Place("")
	var left driver.LeftOut
	for done := 0; f.Limit <= 0 || done < f.Limit; {
		limit := scanPage
		if f.Limit > 0 {
			limit = min(limit, f.Limit-done)
		}
		q := s.records(f, "r.place")
		if last != "" {
			q.where("r.place > ?", last)
		}
		q.WriteString(" ORDER BY r.place")
		q.limit(limit)
		page = page[:0]
		rows := 0
		err := s.db.Read(ctx, func(row Row) error {
			rows, last = rows+1, Place(row.Bytes(len(row)-1))
			r, err := s.layout.Record(row)
			if err == nil {
				page = append(page, r)
			}
			return left.Add(err)
		}, q.String(), q.args...)
		if err != nil {
			return fmt.Errorf("scan records: %w", err)
		}
		for _, r := range page {
			if err := each(r); err != nil {
				return err
			}
		}
		if done += len(page); rows < limit {
			break
		}
	}
	return Wrap(left.Err(), "scan records")
}

const auditColumns = "at, who, kind, was, became, generation, token, verified, renewed, consumer, tenant, `key`, reason"

// addAudit adds an entry to the audit log. It goes with the record of place.
func addAudit(tx Tx, place Place, e *driver.AuditEntry) error {
	return tx.Exec("INSERT INTO semel_audit (place, "+auditColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		place, e.At, e.By, int64(e.Kind), int64(e.From), int64(e.To), int64(e.Generation), int64(e.Token), e.Verified,
		e.Renewed, e.Key.Consumer, e.Key.Tenant, e.Key.Raw, Text(e.Reason))
}

// LogRefusal stores the entry of refused requests. See [driver.RefusalLog].
func (s *Store) LogRefusal(ctx context.Context, id string, e driver.AuditEntry) error {
	place := PlaceOf(&driver.Key{Consumer: e.Key.Consumer, Tenant: "refused requests", Raw: id})
	err := s.db.Atomic(ctx, 1, func(tx Tx) error {
		if err := tx.Exec("DELETE FROM semel_audit WHERE place = ?", place); err != nil {
			return err
		}
		return addAudit(tx, place, &e)
	})
	return Wrap(err, "log a refused request")
}

// Audit lists the audit log, oldest first. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) (out []driver.AuditEntry, err error) {
	q := &query{}
	q.WriteString("SELECT " + auditColumns + " FROM semel_audit")
	if f.Key != (driver.Key{}) {
		q.where("place = ?", PlaceOf(&f.Key))
	}
	if f.Consumer != "" {
		q.where("consumer = ?", f.Consumer)
	}
	if !f.Since.IsZero() {
		// Rows have whole microseconds: an entry of the same moment must not be before it.
		q.where("at >= ?", f.Since.Truncate(time.Microsecond))
	}
	q.WriteString(" ORDER BY seq DESC")
	q.limit(f.Limit)
	err = s.db.Read(ctx, func(r Row) error {
		out = append(out, driver.AuditEntry{
			At: r.Time(0), By: r.Text(1), Kind: driver.OperationKind(r.Int(2)), From: driver.State(r.Int(3)),
			To: driver.State(r.Int(4)), Generation: uint32(r.Int(5)), Token: uint64(r.Int(6)), Verified: r.Flag(7),
			Renewed: r.Flag(8), Key: driver.Key{Consumer: r.Text(9), Tenant: r.Text(10), Raw: r.Text(11)}, Reason: r.Text(12),
		})
		return nil
	}, q.String(), q.args...)
	if err != nil {
		return nil, fmt.Errorf("list the audit log: %w", err)
	}
	slices.Reverse(out)
	return out, nil
}

package postgres

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// scanPage is how many records a scan reads at once: a statement that lasts holds back vacuum.
const scanPage = 1000

// sqlScan reads a page in the order of the primary key, which never changes while a record exists.
// 1 behind this hash, as an array (empty = from the beginning) 2 consumer (NULL = all) 3 state (0 = all) 4 limit
const sqlScan = `SELECT semel_row(r) FROM semel_record r
  WHERE (cardinality($1::uuid[]) = 0 OR hash > $1[1]) AND ($2::bytea IS NULL OR consumer = $2)
    AND ($3::smallint = 0 OR state = $3) ORDER BY hash LIMIT $4::bigint`

// ScanRecords calls each with every record that f selects, in the order of their hashes, a page at a time.
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	after := uuids{}
	for done := 0; f.Limit <= 0 || done < f.Limit; {
		limit := scanPage
		if f.Limit > 0 {
			limit = min(limit, f.Limit-done)
		}
		page, err := s.db.records(ctx, sqlScan, after, bytesOrNull(f.Consumer), int16(f.State), int64(limit))
		if err != nil {
			return fmt.Errorf("scan records: %w", err)
		}
		for _, r := range page {
			if err := each(r); err != nil {
				return err
			}
		}
		if done += len(page); len(page) < limit {
			return nil
		}
		after = uuids{hashOf(&page[len(page)-1].Key)}
	}
	return nil
}

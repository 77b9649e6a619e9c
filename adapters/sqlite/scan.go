package sqlite

import (
	"context"

	"github.com/semel-dev/semel/driver"
)

// scanPage is how many records a scan reads at once: a read that lasts keeps the write-ahead log from being checkpointed.
const scanPage = 1000

// sqlScan reads a page in the order of the hashes, which never change while a record exists.
// 1 behind this hash 2 consumer ("" = all) 3 state (0 = all) 4 limit
const sqlScan = "SELECT " + recordColumns + ` FROM semel_record
  WHERE hash > ?1 AND (?2 = '' OR consumer = ?2) AND (?3 = 0 OR state = ?3) ORDER BY hash LIMIT ?4`

// ScanRecords calls each with every record that f selects, in the order of their hashes, a page at a time.
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	page := make([]driver.Record, 0, scanPage)
	for done, after := 0, []byte{}; f.Limit <= 0 || done < f.Limit; {
		limit := scanPage
		if f.Limit > 0 {
			limit = min(limit, f.Limit-done)
		}
		page = page[:0]
		err := s.db.read(ctx, "scan records", func(v []any) error {
			r, err := scanRecord(v)
			page = append(page, r)
			return err
		}, sqlScan, after, f.Consumer, int64(f.State), limit)
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := each(r); err != nil {
				return err
			}
		}
		if done += len(page); len(page) < limit {
			return nil
		}
		after = hash16(&page[len(page)-1].Key)
	}
	return nil
}

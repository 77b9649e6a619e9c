package memory

import (
	"context"

	"github.com/semel-dev/semel/driver"
)

// ScanRecords calls each with every record that f selects, oldest first, in its state at the beginning of the scan.
func (s *Store) ScanRecords(ctx context.Context, f driver.RecordFilter, each func(driver.Record) error) error {
	rs, err := s.Records(ctx, f)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

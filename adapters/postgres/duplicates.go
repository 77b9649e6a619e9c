package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

// sqlDuplicatesAdd adds duplicates. 1 hashes 2 times 3 message ids 4 workers 5 queues 6 delivery counts 7 decisions 8 causes
// 9 how many of each key are kept
const sqlDuplicatesAdd = "SELECT semel_add_duplicates($1, $2, $3, $4, $5, $6, $7, $8, $9)"

// AddDuplicates appends duplicates of keys that have a record, in one transaction of its own. It waits 200 ms at most for a lock.
// See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	var (
		hashes                                  uuids
		ats                                     stamps
		ids, workers, queues, decisions, causes bytess
		counts                                  int32s
	)
	for i := range ds {
		d := &ds[i]
		hashes, ats, counts = append(hashes, hashOf(&d.Key)), append(ats, d.At), append(counts, int32(d.Count))
		ids, workers, queues = append(ids, []byte(d.MessageID)), append(workers, []byte(d.Worker)), append(queues, []byte(d.Queue))
		decisions, causes = append(decisions, []byte(d.Decision)), append(causes, []byte(d.Cause))
	}
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, sqlDuplicatesAdd, hashes, ats, ids, workers, queues, counts, decisions, causes,
			int32(driver.MaxDuplicates))
		return err
	})
	if err != nil {
		return fmt.Errorf("add duplicates: %w", err)
	}
	return nil
}

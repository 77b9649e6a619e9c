package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

const (
	// sqlDuplicatesAdd adds duplicates. 1 hashes 2 times 3 message ids 4 workers 5 queues 6 delivery counts 7 decisions 8 causes
	// 9 how many of each key are kept
	sqlDuplicatesAdd = "SELECT semel_add_duplicates($1, $2, $3, $4, $5, $6, $7, $8, $9)"
	// sqlDuplicates lists those of a key, oldest first. 1 hash
	sqlDuplicates = `SELECT nr, at, message, worker, queue, delivery, decision, cause FROM semel_duplicate WHERE hash = $1 ORDER BY nr`
)

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

// Duplicates returns the duplicates of a key. See [driver.DuplicateLog].
func (s *Store) Duplicates(ctx context.Context, k driver.Key) (total int64, newest []driver.Duplicate, err error) {
	err = s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlDuplicates, uuid(hashOf(&k)))
		if err != nil {
			return err
		}
		newest, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.Duplicate, error) {
			d := driver.Duplicate{Key: k}
			var id, worker, queue, decision, cause []byte
			err := row.Scan(&total, &d.At, &id, &worker, &queue, &d.Count, &decision, &cause)
			d.MessageID, d.Worker, d.Queue = string(id), string(worker), string(queue)
			d.Decision, d.Cause = string(decision), string(cause)
			return d, err
		})
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("list duplicates: %w", err)
	}
	return total, newest, nil
}

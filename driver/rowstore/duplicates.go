package rowstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// duplicatesStep limits how many duplicates one transaction adds, so that claims wait some milliseconds at most.
const duplicatesStep = 100

// AddDuplicates appends duplicates of keys that have a record, in short transactions. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	for chunk := range slices.Chunk(ds, duplicatesStep) {
		if err := s.db.Atomic(ctx, len(chunk), func(tx Tx) error { return addDuplicates(tx, chunk) }); err != nil {
			return fmt.Errorf("add duplicates: %w", err)
		}
	}
	return nil
}

func addDuplicates(tx Tx, ds []driver.Duplicate) error {
	b, err := lock(tx, len(ds), func(i int) *driver.Key { return &ds[i].Key }, Skip)
	if err != nil {
		return err
	}
	numbers := make([]int64, len(b.ids)) // of the latest duplicate of each key
	for at := range b.ids {
		count := func(r Row) error { numbers[at] = r.Int(0); return nil }
		if b.locked[at].Record.State != driver.Absent {
			if err := tx.Query(count, "SELECT max(nr) FROM semel_duplicate WHERE place = ?", b.ids[at].Place); err != nil {
				return err
			}
		}
	}
	for i := range ds {
		d, at := &ds[i], b.at[i]
		if b.locked[at].Record.State == driver.Absent {
			continue
		}
		numbers[at]++
		err := tx.Exec("INSERT INTO semel_duplicate (place, nr, at, message, worker, queue, delivery, decision, cause) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", b.ids[at].Place, numbers[at], d.At, d.MessageID, d.Worker, d.Queue,
			int64(d.Count), d.Decision, d.Cause)
		if err != nil {
			return err
		}
	}
	for at, nr := range numbers {
		if nr > driver.MaxDuplicates {
			err := tx.Exec("DELETE FROM semel_duplicate WHERE place = ? AND nr <= ?", b.ids[at].Place, nr-driver.MaxDuplicates)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Duplicates returns the duplicates of a key. See [driver.DuplicateLog].
func (s *Store) Duplicates(ctx context.Context, k driver.Key) (total int64, newest []driver.Duplicate, err error) {
	err = s.db.Read(ctx, func(r Row) error {
		total = r.Int(0)
		newest = append(newest, driver.Duplicate{
			Key: k, At: r.Time(1), MessageID: r.Text(2), Worker: r.Text(3), Queue: r.Text(4), Count: int(r.Int(5)),
			Decision: r.Text(6), Cause: r.Text(7),
		})
		return nil
	}, "SELECT nr, at, message, worker, queue, delivery, decision, cause FROM semel_duplicate WHERE place = ? ORDER BY nr",
		PlaceOf(&k))
	return total, newest, Wrap(err, "list duplicates")
}

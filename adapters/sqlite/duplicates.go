package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

const (
	// sqlDuplicateAdd adds a duplicate of a key that has a record. ?1 hash ?2 at ?3 message ?4 worker ?5 queue ?6 delivery
	// ?7 decision ?8 cause
	sqlDuplicateAdd = `INSERT INTO semel_duplicate (hash, nr, at, message, worker, queue, delivery, decision, cause)
  SELECT ?1, coalesce((SELECT max(nr) FROM semel_duplicate WHERE hash = ?1), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
  WHERE EXISTS (SELECT 1 FROM semel_record WHERE hash = ?1)`
	// sqlDuplicateTrim removes all but the newest. ?1 hash ?2 how many are kept
	sqlDuplicateTrim = `DELETE FROM semel_duplicate
  WHERE hash = ?1 AND nr <= (SELECT max(nr) FROM semel_duplicate WHERE hash = ?1) - ?2`
	// sqlDuplicates lists those of a key, oldest first. 1 hash
	sqlDuplicates = "SELECT nr, at, message, worker, queue, delivery, decision, cause FROM semel_duplicate WHERE hash = ? ORDER BY nr"
)

// duplicatesStep bounds what one transaction adds, so that claims wait some milliseconds at most.
const duplicatesStep = 100

// AddDuplicates appends duplicates of keys that have a record. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	for chunk := range slices.Chunk(ds, duplicatesStep) {
		if err := s.addDuplicates(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addDuplicates(ctx context.Context, ds []driver.Duplicate) error {
	err := s.db.write(ctx, len(ds), func(t *txn) error {
		added := map[driver.Key][]byte{}
		for i := range ds {
			d := &ds[i]
			hash := added[d.Key]
			if hash == nil {
				hash = hash16(&d.Key)
				added[d.Key] = hash
			}
			_, err := t.s.exec(sqlDuplicateAdd, hash, micro(d.At), d.MessageID, d.Worker, d.Queue, int64(d.Count), d.Decision, d.Cause)
			if err != nil {
				return err
			}
		}
		for _, hash := range added {
			if _, err := t.s.exec(sqlDuplicateTrim, hash, int64(driver.MaxDuplicates)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add duplicates: %w", err)
	}
	return nil
}

// Duplicates returns the duplicates of a key. See [driver.DuplicateLog].
func (s *Store) Duplicates(ctx context.Context, k driver.Key) (total int64, newest []driver.Duplicate, err error) {
	err = s.db.read(ctx, "list duplicates", func(v []any) error {
		total = integer(v[0])
		newest = append(newest, driver.Duplicate{
			Key: k, At: fromMicro(integer(v[1])), MessageID: text(v[2]), Worker: text(v[3]), Queue: text(v[4]),
			Count: int(integer(v[5])), Decision: text(v[6]), Cause: text(v[7]),
		})
		return nil
	}, sqlDuplicates, hash16(&k))
	return total, newest, err
}

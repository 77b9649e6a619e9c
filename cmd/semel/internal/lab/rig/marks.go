package rig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Marks is the table of ids that hand-written guards keep: an id, a word, and when it was written.
type Marks struct{ db *sql.DB }

// Marks leads to the marks of the run.
func (r *Rig) Marks() Marks { return Marks{r.SQL} }

const (
	createMarks = `CREATE TABLE IF NOT EXISTS lab_marks (id TEXT PRIMARY KEY, status TEXT NOT NULL, at BIGINT NOT NULL)`
	selectMark  = `SELECT status FROM lab_marks WHERE id = $1`
	// $1 id, $2 status, $3 microseconds since 1970
	insertMark = `INSERT INTO lab_marks (id, status, at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`
	upsertMark = `INSERT INTO lab_marks (id, status, at) VALUES ($1, $2, $3)
	ON CONFLICT (id) DO UPDATE SET status = excluded.status, at = excluded.at`
	// $4: a mark that is older gives way
	takeMark = `INSERT INTO lab_marks (id, status, at) VALUES ($1, $2, $3)
	ON CONFLICT (id) DO UPDATE SET status = excluded.status, at = excluded.at WHERE lab_marks.at < $4`
	deleteMark = `DELETE FROM lab_marks WHERE id = $1`
)

// Get answers "" for an id without a mark.
func (m Marks) Get(ctx context.Context, id string) (status string, err error) {
	err = m.db.QueryRowContext(ctx, selectMark, id).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the mark of %s: %w", id, err)
	}
	return status, nil
}

// Add writes a mark where there is none, and tells whether it did: the attribute_not_exists of DynamoDB.
func (m Marks) Add(ctx context.Context, id, status string) (bool, error) {
	return m.write(ctx, insertMark, id, status, time.Now().UnixMicro())
}

// Put writes a mark over whatever is there.
func (m Marks) Put(ctx context.Context, id, status string) error {
	_, err := m.write(ctx, upsertMark, id, status, time.Now().UnixMicro())
	return err
}

// Take writes a mark where there is none, or one older than ttl: a lock that expires.
func (m Marks) Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error) {
	now := time.Now()
	return m.write(ctx, takeMark, id, status, now.UnixMicro(), now.Add(-ttl).UnixMicro())
}

// Delete removes a mark, whoever wrote it.
func (m Marks) Delete(ctx context.Context, id string) error {
	_, err := m.write(ctx, deleteMark, id)
	return err
}

func (m Marks) write(ctx context.Context, statement, id string, args ...any) (bool, error) {
	res, err := m.db.ExecContext(ctx, statement, append([]any{id}, args...)...)
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", id, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", id, err)
	}
	return n > 0, nil
}

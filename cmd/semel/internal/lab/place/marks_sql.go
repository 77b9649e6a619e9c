package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// sqlMarks are the marks as a table in the database of the records.
type sqlMarks struct{ db *sql.DB }

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

func (m sqlMarks) Get(ctx context.Context, id string) (status string, err error) {
	err = m.db.QueryRowContext(ctx, selectMark, id).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the mark of %s: %w", id, err)
	}
	return status, nil
}

func (m sqlMarks) Add(ctx context.Context, id, status string) (bool, error) {
	return m.write(ctx, insertMark, id, status, time.Now().UnixMicro())
}

func (m sqlMarks) Put(ctx context.Context, id, status string) error {
	_, err := m.write(ctx, upsertMark, id, status, time.Now().UnixMicro())
	return err
}

func (m sqlMarks) Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error) {
	now := time.Now()
	return m.write(ctx, takeMark, id, status, now.UnixMicro(), now.Add(-ttl).UnixMicro())
}

func (m sqlMarks) Delete(ctx context.Context, id string) error {
	_, err := m.write(ctx, deleteMark, id)
	return err
}

func (m sqlMarks) write(ctx context.Context, statement, id string, args ...any) (bool, error) {
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

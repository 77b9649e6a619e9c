package rowqueue

import (
	"context"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	// DeadLetterColumns are the columns of a dead letter, without queue and dead_at. See [DeadLetterValues].
	DeadLetterColumns = "id, kind, reason, consumer, tenant, `key`, generation, token, attempts, first_received, version, " +
		"msg_queue, msg_id, grp, sent_at, headers, body"
	// SelectDeadLetters begins a query for dead letters.
	SelectDeadLetters = "SELECT dead_at, " + DeadLetterColumns + " FROM semel_dead_letter "
	// DeleteDeadLetter removes a dead letter. Its parameters are the names of queue and dead letter.
	DeleteDeadLetter = "DELETE FROM semel_dead_letter" + ofQueue

	// SelectDeadLetter selects one dead letter. Its parameters are those of DeleteDeadLetter.
	SelectDeadLetter = SelectDeadLetters + ofQueue

	ofQueue = " WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND id = ?"
)

// DeadLetterValues are the values of DeadLetterColumns but the last one, the body.
func DeadLetterValues(l *driver.DeadLetter) []any {
	return []any{
		rowstore.Name(l.ID), rowstore.Name(l.Kind), l.Reason, l.Key.Consumer, l.Key.Tenant, l.Key.Raw, int64(l.Generation),
		int64(l.Token), int64(l.Attempts), l.FirstReceived, rowstore.OrNull([]byte(l.Version)), rowstore.Name(l.Message.Queue),
		l.Message.ID, rowstore.Text(l.Message.Group), l.Message.SentAt, rowstore.OrNull(rowstore.Text(PackHeaders(l.Message.Headers))),
	}
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	sql, args := q.sql.DeadLetters, []any{rowstore.Name(q.name)}
	if limit > 0 {
		sql, args = sql+" LIMIT ?", append(args, int64(limit))
	}
	return q.deadLetters(ctx, sql, args...)
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	all, err := q.deadLetters(ctx, SelectDeadLetter, rowstore.Name(q.name), rowstore.Name(id))
	if len(all) == 0 || err != nil {
		return l, false, err
	}
	return all[0], true, nil
}

// DeleteDeadLetter removes a dead letter, if it exists.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	err := q.db.Atomic(ctx, 1, func(tx rowstore.Tx) error {
		return tx.Exec(DeleteDeadLetter, rowstore.Name(q.name), rowstore.Name(id))
	})
	return rowstore.Wrap(err, "delete dead letter %s", id)
}

func (q *Queue) deadLetters(ctx context.Context, sql string, args ...any) (out []driver.DeadLetter, err error) {
	err = q.db.Read(ctx, func(r rowstore.Row) error {
		l, err := deadLetter(r)
		out = append(out, l)
		return err
	}, sql, args...)
	return out, rowstore.Wrap(err, "list dead letters")
}

// deadLetter reads dead_at and DeadLetterColumns.
func deadLetter(r rowstore.Row) (driver.DeadLetter, error) {
	m, err := Message(r, 13, r.Text(12))
	return driver.DeadLetter{
		DeadAt: r.Time(0), ID: r.Text(1), Kind: driver.DeadLetterKind(r.Text(2)), Reason: r.Text(3),
		Key:        driver.Key{Consumer: r.Text(4), Tenant: r.Text(5), Raw: r.Text(6)},
		Generation: uint32(r.Int(7)), Token: uint64(r.Int(8)), Attempts: int(r.Int(9)), FirstReceived: r.Time(10),
		Version: driver.Version(r.Bytes(11)), Message: m,
	}, rowstore.Wrap(err, "dead letter %q", r.Text(1))
}

// deadLetterRead is how many dead letters one page reads at most.
const deadLetterRead = 1000

// PageDeadLetters lists a page of dead letters. See [driver.DeadLetterPager]. It reads them in the order of their index, and
// filters what it read.
func (q *Queue) PageDeadLetters(ctx context.Context, f driver.DeadLetterFilter) (page []driver.DeadLetter, next driver.Cursor, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	args, order := []any{rowstore.Name(q.name)}, ""
	sql := "SELECT dead_at, id, kind, reason, consumer, tenant, `key`, generation, token, attempts, first_received, version, msg_queue, " +
		"msg_id, grp, sent_at, NULL, NULL, seq FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = ?)"
	if f.Newest {
		order = " DESC"
	}
	if f.After != "" {
		seq, _, err := f.After.Parts()
		if err != nil {
			return nil, "", err
		}
		sql, args = sql+map[bool]string{false: " AND seq > ?", true: " AND seq < ?"}[f.Newest], append(args, seq)
	}
	limit := f.Limit
	if f.Kind != "" || f.Consumer != "" || f.Class != "" {
		limit = max(limit, deadLetterRead)
	}
	read, last := 0, int64(0)
	err = q.db.Read(ctx, func(r rowstore.Row) error {
		if read++; read > limit || len(page) == f.Limit {
			next = driver.NewCursor(last, nil)
			return nil
		}
		l, err := deadLetter(r)
		if last = r.Int(18); f.Selects(&l) {
			page = append(page, l)
		}
		return err
	}, sql+" ORDER BY seq"+order+" LIMIT ?", append(args, int64(limit+1))...)
	if err != nil {
		return nil, "", rowstore.Wrap(err, "list dead letters")
	}
	return page, next, nil
}

// GroupDeadLetters groups the first dead letters. See [driver.DeadLetterGrouper]. The database groups by the whole reason.
func (q *Queue) GroupDeadLetters(ctx context.Context, most int) (out []driver.DeadLetterGroup, err error) {
	err = q.db.Read(ctx, func(r rowstore.Row) error {
		out = append(out, driver.DeadLetterGroup{
			Consumer: r.Text(0), Kind: driver.DeadLetterKind(r.Text(1)), Class: r.Text(2), Count: int(r.Int(3)), From: r.Time(4), To: r.Time(5),
		})
		return nil
	}, "SELECT consumer, kind, reason, count(*), min(dead_at), max(dead_at) FROM (SELECT consumer, kind, reason, dead_at FROM semel_dead_letter "+
		"WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY seq LIMIT ?) l GROUP BY consumer, kind, reason",
		rowstore.Name(q.name), int64(most))
	return driver.MergeGroups(out), rowstore.Wrap(err, "group dead letters")
}

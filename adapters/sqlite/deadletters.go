package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

const (
	deadLetterColumns = `l.id, l.kind, l.reason, l.consumer, l.tenant, l.key, l.generation, l.token, l.attempts,
  l.first_received, l.dead_at, l.msg_id, l.msg_queue, l.grp, l.sent_at, l.headers, l.body, l.version`
	// sqlDeadLetters walks in the order of writing: sorting would hold all bodies in memory.
	sqlDeadLetters = "SELECT " + deadLetterColumns + ` FROM semel_dead_letter l
  WHERE +l.queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY l.seq LIMIT ?`
	sqlDeadLetter = "SELECT " + deadLetterColumns + ` FROM semel_dead_letter l JOIN semel_queue q ON q.id = l.queue WHERE q.name = ?
  AND l.id = ?`
	// 1 queue, then deadLetterColumns
	sqlDeadLetterInsert = `INSERT INTO semel_dead_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts,
  first_received, dead_at, msg_id, msg_queue, grp, sent_at, headers, body, version)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING`
	sqlDeadLetterDelete = "DELETE FROM semel_dead_letter WHERE queue = ? AND id = ?"
)

// DeadLetters returns the place for the dead letters of a queue elsewhere: those of the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

// putDeadLetter writes a dead letter unless its id is there already.
func (t *txn) putDeadLetter(row *queueRow, l *driver.DeadLetter) error {
	headers, err := headersJSON(l.Message.Headers)
	if err != nil {
		return err
	}
	_, err = t.s.exec(sqlDeadLetterInsert, row.id, l.ID, string(l.Kind), l.Reason, l.Key.Consumer, l.Key.Tenant, l.Key.Raw,
		int64(l.Generation), int64(l.Token), int64(l.Attempts), micro(l.FirstReceived), t.micros(), l.Message.ID,
		l.Message.Queue, l.Message.Group, micro(l.Message.SentAt), headers, bytesOrNull(l.Message.Body),
		bytesOrNull([]byte(l.Version)))
	return err
}

func (t *txn) deleteDeadLetter(row *queueRow, id string) error {
	_, err := t.s.exec(sqlDeadLetterDelete, row.id, id)
	return err
}

func scanDeadLetter(v []any) (driver.DeadLetter, error) {
	headers, err := readHeaders(v[15])
	if err != nil {
		return driver.DeadLetter{}, fmt.Errorf("dead letter %q: %w", text(v[0]), err)
	}
	return driver.DeadLetter{
		ID: text(v[0]), Kind: driver.DeadLetterKind(text(v[1])), Reason: text(v[2]),
		Key:        driver.Key{Consumer: text(v[3]), Tenant: text(v[4]), Raw: text(v[5])},
		Generation: uint32(integer(v[6])), Token: uint64(integer(v[7])), Attempts: int(integer(v[8])),
		Version: driver.Version(blob(v[17])), FirstReceived: fromMicro(integer(v[9])), DeadAt: fromMicro(integer(v[10])),
		Message: driver.Message{
			ID: text(v[11]), Queue: text(v[12]), Group: text(v[13]), SentAt: fromMicro(integer(v[14])), Headers: headers,
			Body: blob(v[16]),
		},
	}, nil
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	if limit <= 0 {
		limit = -1
	}
	var out []driver.DeadLetter
	err := q.db.read(ctx, "list dead letters", func(v []any) error {
		l, err := scanDeadLetter(v)
		out = append(out, l)
		return err
	}, sqlDeadLetters, q.name, limit)
	return out, err
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	err = q.db.read(ctx, "read dead letter", func(v []any) (err error) {
		l, err = scanDeadLetter(v)
		ok = err == nil
		return err
	}, sqlDeadLetter, q.name, id)
	return l, ok, err
}

// PutDeadLetter publishes a dead letter that no delivery leads to; publishing an id twice is one dead letter.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	err := q.db.write(ctx, 1, func(t *txn) error {
		row, err := t.queue(q.name, true)
		if err != nil {
			return err
		}
		return t.putDeadLetter(row, &l)
	})
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	return nil
}

// DeleteDeadLetter removes a dead letter; one that is not there is no error.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	err := q.db.write(ctx, 1, func(t *txn) error {
		row, err := t.queue(q.name, false)
		if row == nil || err != nil {
			return err
		}
		return t.deleteDeadLetter(row, id)
	})
	if err != nil {
		return fmt.Errorf("delete dead letter %s: %w", id, err)
	}
	return nil
}

package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

const (
	letterColumns = `l.id, l.kind, l.reason, l.consumer, l.tenant, l.key, l.generation, l.token, l.attempts,
  l.first_received, l.dead_at, l.msg_id, l.msg_queue, l.grp, l.sent_at, l.headers, l.body, l.version`
	// sqlLetters walks in the order of writing: sorting would hold all bodies in memory.
	sqlLetters = "SELECT " + letterColumns + ` FROM semel_letter l
  WHERE +l.queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY l.seq LIMIT ?`
	sqlLetter = "SELECT " + letterColumns + ` FROM semel_letter l JOIN semel_queue q ON q.id = l.queue WHERE q.name = ?
  AND l.id = ?`
	// 1 queue, then letterColumns
	sqlLetterInsert = `INSERT INTO semel_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts,
  first_received, dead_at, msg_id, msg_queue, grp, sent_at, headers, body, version)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING`
	sqlLetterDelete = "DELETE FROM semel_letter WHERE queue = ? AND id = ?"
)

// DeadLetters returns the place for the dead letters of a queue elsewhere: those of the queue of that name in this database.
func (s *Store) DeadLetters(queue string) driver.LetterBox { return s.db.Queue(queue) }

// putLetter writes a letter unless its id is there already.
func (t *txn) putLetter(row *queueRow, l *driver.Letter) error {
	headers, err := headersJSON(l.Message.Headers)
	if err != nil {
		return err
	}
	_, err = t.s.exec(sqlLetterInsert, row.id, l.ID, string(l.Kind), l.Reason, l.Key.Consumer, l.Key.Tenant, l.Key.Raw,
		int64(l.Generation), int64(l.Token), int64(l.Attempts), micro(l.FirstReceived), t.micros(), l.Message.ID,
		l.Message.Queue, l.Message.Group, micro(l.Message.SentAt), headers, bytesOrNull(l.Message.Body),
		bytesOrNull([]byte(l.Version)))
	return err
}

func (t *txn) deleteLetter(row *queueRow, id string) error {
	_, err := t.s.exec(sqlLetterDelete, row.id, id)
	return err
}

func scanLetter(v []any) (driver.Letter, error) {
	headers, err := readHeaders(v[15])
	if err != nil {
		return driver.Letter{}, fmt.Errorf("letter %q: %w", text(v[0]), err)
	}
	return driver.Letter{
		ID: text(v[0]), Kind: driver.LetterKind(text(v[1])), Reason: text(v[2]),
		Key:        driver.Key{Consumer: text(v[3]), Tenant: text(v[4]), Raw: text(v[5])},
		Generation: uint32(integer(v[6])), Token: uint64(integer(v[7])), Attempts: int(integer(v[8])),
		Version: driver.Version(blob(v[17])), FirstReceived: fromMicro(integer(v[9])), DeadAt: fromMicro(integer(v[10])),
		Message: driver.Message{
			ID: text(v[11]), Queue: text(v[12]), Group: text(v[13]), SentAt: fromMicro(integer(v[14])), Headers: headers,
			Body: blob(v[16]),
		},
	}, nil
}

// Letters lists up to limit letters (0 = all), oldest first.
func (q *Queue) Letters(ctx context.Context, limit int) ([]driver.Letter, error) {
	if limit <= 0 {
		limit = -1
	}
	var out []driver.Letter
	err := q.db.read(ctx, "list letters", func(v []any) error {
		l, err := scanLetter(v)
		out = append(out, l)
		return err
	}, sqlLetters, q.name, limit)
	return out, err
}

// Letter returns one letter; ok is false when there is none.
func (q *Queue) Letter(ctx context.Context, id string) (l driver.Letter, ok bool, err error) {
	err = q.db.read(ctx, "read letter", func(v []any) (err error) {
		l, err = scanLetter(v)
		ok = err == nil
		return err
	}, sqlLetter, q.name, id)
	return l, ok, err
}

// PutLetter publishes a letter that no delivery leads to; publishing an id twice is one letter.
func (q *Queue) PutLetter(ctx context.Context, l driver.Letter) error {
	if l.ID == "" {
		return errors.New("put letter: it has no ID")
	}
	err := q.db.write(ctx, 1, func(t *txn) error {
		row, err := t.queue(q.name, true)
		if err != nil {
			return err
		}
		return t.putLetter(row, &l)
	})
	if err != nil {
		return fmt.Errorf("put letter %s: %w", l.ID, err)
	}
	return nil
}

// DeleteLetter removes a letter; one that is not there is no error.
func (q *Queue) DeleteLetter(ctx context.Context, id string) error {
	err := q.db.write(ctx, 1, func(t *txn) error {
		row, err := t.queue(q.name, false)
		if row == nil || err != nil {
			return err
		}
		return t.deleteLetter(row, id)
	})
	if err != nil {
		return fmt.Errorf("delete letter %s: %w", id, err)
	}
	return nil
}

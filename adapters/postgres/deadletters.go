package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

const (
	deadLetterColumns = `l.id, l.kind, l.reason, l.consumer, l.tenant, l.key, l.generation, l.token, l.attempts,
  l.first_received, l.dead_at, l.msg_id, l.msg_queue, l.grp, l.sent_at, l.headers, l.body, l.version`
	// 1 queue name 2 limit, NULL = all
	sqlDeadLetters = "SELECT " + deadLetterColumns + ` FROM semel_dead_letter l
  WHERE l.queue = (SELECT id FROM semel_queue WHERE name = $1) ORDER BY l.seq LIMIT $2`
	// 1 queue name 2 id
	sqlDeadLetter = "SELECT " + deadLetterColumns + ` FROM semel_dead_letter l
  WHERE l.queue = (SELECT id FROM semel_queue WHERE name = $1) AND l.id = $2`
	// 1 queue name, then the columns
	sqlDeadLetterInsert = `INSERT INTO semel_dead_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts,
  first_received, dead_at, msg_id, msg_queue, grp, sent_at, headers, body, version)
  VALUES ((semel_queue_ids(ARRAY[$1::text]))[1], $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp(), $12, $13, $14,
  $15, $16, $17, $18) ON CONFLICT (queue, id) DO NOTHING`
	// 1 queue name 2 id
	sqlDeadLetterDelete = `DELETE FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = $1) AND id = $2`
)

// DeadLetters returns the place for the dead letters of a queue elsewhere: those of the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

// addDeadLetter adds the statement that writes a dead letter unless its id is there already. It fails (codeQueue) when the queue is
// not there: see queueMade.
func (q *Queue) addDeadLetter(p *pipeline, l *driver.DeadLetter) {
	headers, err := headersJSON(l.Message.Headers)
	if err != nil {
		headers = nil // a map of strings can always be written
	}
	body := l.Message.Body
	if body == nil {
		body = []byte{} // nil is NULL
	}
	p.exec("write a dead letter", sqlDeadLetterInsert, q.name, l.ID, string(l.Kind), []byte(l.Reason), []byte(l.Key.Consumer),
		[]byte(l.Key.Tenant), []byte(l.Key.Raw), int64(l.Generation), int64(l.Token), l.Attempts, timeOrNull(l.FirstReceived),
		[]byte(l.Message.ID), l.Message.Queue, groupOrNull(l.Message.Group), timeOrNull(l.Message.SentAt), headers, body,
		bytesOrNull(l.Version))
}

func groupOrNull(group string) []byte {
	if group == "" {
		return nil
	}
	return []byte(group)
}

// checkDeadLetter refuses what the columns of a dead letter cannot hold.
func checkDeadLetter(l *driver.DeadLetter) error {
	for _, c := range []struct{ what, s string }{
		{"dead letter id", l.ID}, {"dead letter kind", string(l.Kind)}, {"dead letter's queue", l.Message.Queue},
	} {
		if err := checkText(c.what, c.s); err != nil {
			return err
		}
	}
	return nil
}

func scanDeadLetter(row scanner) (l driver.DeadLetter, err error) {
	var reason, consumer, tenant, key, id, group, headers, version []byte
	var generation, token int64
	var first, sent *time.Time
	err = row.Scan(&l.ID, (*string)(&l.Kind), &reason, &consumer, &tenant, &key, &generation, &token, &l.Attempts,
		&first, &l.DeadAt, &id, &l.Message.Queue, &group, &sent, &headers, &l.Message.Body, &version)
	if err != nil {
		return l, err
	}
	l.Reason, l.Key = string(reason), driver.Key{Consumer: string(consumer), Tenant: string(tenant), Raw: string(key)}
	l.Generation, l.Token = uint32(generation), uint64(token)
	l.Message.ID, l.Message.Group, l.Version = string(id), string(group), driver.Version(version)
	if first != nil {
		l.FirstReceived = *first
	}
	if sent != nil {
		l.Message.SentAt = *sent
	}
	if l.Message.Headers, err = readHeaders(headers); err != nil {
		return l, fmt.Errorf("dead letter %q: %w", l.ID, err)
	}
	return l, nil
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	var most *int
	if limit > 0 {
		most = &limit
	}
	var out []driver.DeadLetter
	err := q.db.read(ctx, func(row scanner) error {
		l, err := scanDeadLetter(row)
		out = append(out, l)
		return err
	}, sqlDeadLetters, q.name, most)
	if err != nil {
		return nil, fmt.Errorf("list dead letters of queue %q: %w", q.name, err)
	}
	return out, nil
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	if !isText(id) {
		return l, false, nil // no dead letter has it
	}
	err = q.db.read(ctx, func(row scanner) (err error) {
		l, err = scanDeadLetter(row)
		ok = err == nil
		return err
	}, sqlDeadLetter, q.name, id)
	if err != nil {
		return l, false, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return l, ok, nil
}

// PutDeadLetter publishes a dead letter that no delivery leads to; publishing an id twice is one dead letter.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	err := checkDeadLetter(&l)
	if err == nil {
		err = q.db.inQueues(ctx, func(p *pipeline) error {
			q.addDeadLetter(p, &l)
			return q.db.queueMade(ctx, q.name)
		})
	}
	if err != nil {
		return fmt.Errorf("put dead letter %s: %w", l.ID, err)
	}
	return nil
}

// DeleteDeadLetter removes a dead letter; one that is not there is no error.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	if !isText(id) {
		return nil // no dead letter has it
	}
	err := q.db.once(ctx, func(p *pipeline) error { p.exec("delete", sqlDeadLetterDelete, q.name, id); return nil })
	if err != nil {
		return fmt.Errorf("delete dead letter %s: %w", id, err)
	}
	return nil
}

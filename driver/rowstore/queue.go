package rowstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/semel-dev/semel/driver"
)

// This file is for queues in the same database: headers, checks, dead letters in the table semel_dead_letter.

// PackHeaders returns headers as they are stored, nil when there are none.
func PackHeaders(h map[string]string) []byte {
	if len(h) == 0 {
		return nil
	}
	b, _ := json.Marshal(h) // strings always marshal
	return b
}

// ReadHeaders reads what PackHeaders wrote.
func ReadHeaders(b []byte) (h map[string]string, err error) {
	if len(b) > 0 {
		err = json.Unmarshal(b, &h)
	}
	return h, Wrap(err, "read headers")
}

// Message reads the columns id, grp, sent_at, headers and body, of which i is the first.
func (r Row) Message(i int, queue string) (driver.Message, error) {
	m := driver.Message{ID: r.Text(i), Queue: queue, Group: r.Text(i + 1), SentAt: r.Time(i + 2), Body: r.Bytes(i + 4)}
	var err error
	if m.Headers, err = ReadHeaders([]byte(r.Text(i + 3))); err != nil {
		return m, fmt.Errorf("message %q: %w", m.ID, err)
	}
	return m, nil
}

// Peek runs a query for messages of a queue: the columns of [Row.Message], then the delivery count.
func Peek(ctx context.Context, db DB, queue, sql string, args ...any) (out []driver.Delivery, err error) {
	err = db.Read(ctx, func(r Row) error {
		m, err := r.Message(0, queue)
		out = append(out, driver.Delivery{Message: m, Count: int(r.Int(5))})
		return err
	}, sql, args...)
	return out, Wrap(err, "peek into queue %q", queue)
}

// Queues lists the names of the queues, sorted.
func Queues(ctx context.Context, db DB) (out []string, err error) {
	err = db.Read(ctx, func(r Row) error { out = append(out, r.Text(0)); return nil }, "SELECT name FROM semel_queue")
	slices.Sort(out)
	return out, Wrap(err, "list queues")
}

// CheckWork refuses effects other than statements, acknowledgements that ack refuses, and messages to no queue. It clears
// effects that are a nil *driver.Statements.
func CheckWork(w *driver.Work, ack func(*driver.Settlement) error) error {
	if w.Effects != nil {
		e, ok := w.Effects.(*driver.Statements)
		if !ok {
			return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
		}
		if e == nil {
			w.Effects = nil
		}
	}
	if w.Ack != nil {
		if err := ack(w.Ack); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	for i := range w.Emit {
		if w.Emit[i].Queue == "" {
			return fmt.Errorf("emitted message %d names no queue", i)
		}
	}
	return nil
}

// Offers reports whether effects points to a *driver.Statements, and sets that to an empty buffer.
func (s *Store) Offers(effects any) bool {
	e, ok := effects.(**driver.Statements)
	if ok {
		*e = &driver.Statements{}
	}
	return ok
}

// DeadLetterColumns are the columns of a dead letter, without queue and dead_at. See [DeadLetterValues].
const DeadLetterColumns = "id, kind, reason, consumer, tenant, key, generation, token, attempts, first_received, version, " +
	"msg_queue, msg_id, grp, sent_at, headers, body"

// SelectDeadLetters begins a query for [DeadLetters].
const SelectDeadLetters = "SELECT dead_at, " + DeadLetterColumns + " FROM semel_dead_letter "

// DeadLetterValues are the values of DeadLetterColumns but the last one, the body.
func DeadLetterValues(l *driver.DeadLetter) []any {
	var headers any
	if h := PackHeaders(l.Message.Headers); h != nil {
		headers = Text(h)
	}
	return []any{
		Name(l.ID), Name(l.Kind), l.Reason, l.Key.Consumer, l.Key.Tenant, l.Key.Raw, int64(l.Generation), int64(l.Token),
		int64(l.Attempts), l.FirstReceived, bytesOrNull([]byte(l.Version)), Name(l.Message.Queue), l.Message.ID,
		Text(l.Message.Group), l.Message.SentAt, headers,
	}
}

// DeadLetters runs a query that begins with SelectDeadLetters; limit 0 = all.
func DeadLetters(ctx context.Context, db DB, limit int, sql string, args ...any) (out []driver.DeadLetter, err error) {
	q := &query{args: args}
	q.WriteString(sql)
	q.limit(limit)
	err = db.Read(ctx, func(r Row) error {
		m, err := r.Message(13, r.Text(12))
		out = append(out, driver.DeadLetter{
			DeadAt: r.Time(0), ID: r.Text(1), Kind: driver.DeadLetterKind(r.Text(2)), Reason: r.Text(3),
			Key:        driver.Key{Consumer: r.Text(4), Tenant: r.Text(5), Raw: r.Text(6)},
			Generation: uint32(r.Int(7)), Token: uint64(r.Int(8)), Attempts: int(r.Int(9)), FirstReceived: r.Time(10),
			Version: driver.Version(r.Bytes(11)), Message: m,
		})
		return Wrap(err, "dead letter %q", r.Text(1))
	}, q.String(), q.args...)
	return out, Wrap(err, "list dead letters")
}

// DeadLetter is DeadLetters for one; ok is false when there is none.
func DeadLetter(ctx context.Context, db DB, sql string, args ...any) (l driver.DeadLetter, ok bool, err error) {
	all, err := DeadLetters(ctx, db, 1, sql, args...)
	if len(all) == 0 || err != nil {
		return l, false, err
	}
	return all[0], true, nil
}

// DeleteDeadLetter removes a dead letter. Its parameters are the names of queue and dead letter.
const DeleteDeadLetter = "DELETE FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND id = ?"

// Waiters are the blocked receivers of a process. The zero value is ready.
type Waiters struct {
	mu  sync.Mutex
	all map[*Waiter]bool // whether it waits
}

// Waiter is one Receive that looks or waits.
type Waiter struct {
	// Signal has room for one signal.
	Signal chan struct{}
	queue  string
}

// Add registers a Receive before it looks, so that it misses nothing.
func (w *Waiters) Add(queue string) *Waiter {
	x := &Waiter{Signal: make(chan struct{}, 1), queue: queue}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*Waiter]bool{}
	}
	w.all[x] = false
	return x
}

// Wait marks a waiter that has found nothing.
func (w *Waiters) Wait(x *Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[x] = true
}

// Remove ends a registration.
func (w *Waiters) Remove(x *Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, x)
}

// Wake signals the waiters of some queues. Those that find nothing wait again.
func (w *Waiters) Wake(is func(queue string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.all {
		if is(x.queue) {
			select {
			case x.Signal <- struct{}{}:
			default: // signalled before
			}
		}
	}
}

// WakeQueue signals the waiters of one queue.
func (w *Waiters) WakeQueue(queue string) { w.Wake(func(name string) bool { return name == queue }) }

// Queues are the names of the queues with a receiver that waits.
func (w *Waiters) Queues() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x, waits := range w.all {
		if waits && !slices.Contains(out, x.queue) {
			out = append(out, x.queue)
		}
	}
	return out
}

var (
	_ driver.RecordInspector = (*Store)(nil)
	_ driver.Operator        = (*Store)(nil)
	_ driver.Sweeper         = (*Store)(nil)
	_ driver.StepStore       = (*Store)(nil)
	_ driver.LongTerm        = (*Store)(nil)
	_ driver.AuditLog        = (*Store)(nil)
	_ driver.DuplicateLog    = (*Store)(nil)
)

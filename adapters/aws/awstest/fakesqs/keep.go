package fakesqs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// Row is a piece of what a server holds, for a Keeper: what kind of piece, of which queue, and which one.
type Row struct {
	Kind, Queue, ID string
	// Value is JSON; nil takes the row away.
	Value []byte
}

// Keeper stores the state of a server across restarts. A row has one value: that of the last Save with it.
type Keeper interface {
	// Save writes rows: all of them or none. It is called by one goroutine at a time, before the response to the request
	// that changed them is sent. After an error the next Save has the same rows again.
	Save(rows []Row) error
	// Load calls row for every row that is kept, in any order.
	Load(row func(Row) error) error
}

// Open makes a server with the state in k, and saves changes there: a response is sent after its changes are saved. If they
// cannot be saved, the request fails with ServiceUnavailable, and may have been carried out. The next requests are not
// carried out before the rest is saved. Deleted messages for Return are not saved.
func Open(o Options, k Keeper) (*Server, error) {
	s := New(o)
	if err := s.load(k); err != nil {
		return nil, err
	}
	s.keeper.to, s.dirt = k, &dirt{rows: map[place]bool{}}
	for _, q := range s.queues {
		q.dirt = s.dirt
	}
	for name, do := range s.json.Operations {
		s.json.Operations[name] = s.kept(do)
	}
	return s, nil
}

// keeper saves the state of a server.
type keeper struct {
	mu sync.Mutex // held during a Save
	to Keeper     // nil = nowhere
	// owing is the error of the last Save if it failed.
	owing error
}

// The kinds of rows. A message has two: what never changes, with its body, and what every delivery changes.
const (
	kindQueue   = "queue"
	kindMessage = "message"
	kindState   = "state"
	kindDedup   = "dedup"
	kindAttempt = "attempt"
	kindTask    = "task"
	kindDeleted = "deleted"
)

// place is a row's name.
type place struct{ kind, queue, id string }

// dirt are the rows that changed since the last Save; a nil dirt records nothing.
type dirt struct{ rows map[place]bool }

func (d *dirt) mark(kind, queue, id string) {
	if d != nil {
		d.rows[place{kind, queue, id}] = true
	}
}

// mark records that the queue itself changed.
func (q *queue) mark() { q.dirt.mark(kindQueue, q.name, "") }

// moved records a change of a message by a delivery.
func (q *queue) moved(m *message) { q.dirt.mark(kindState, q.name, m.id) }

// whole records that a message was added or removed.
func (q *queue) whole(m *message) {
	q.dirt.mark(kindMessage, q.name, m.id)
	q.dirt.mark(kindState, q.name, m.id)
}

// markAll records all rows of a queue that is deleted.
func (q *queue) markAll() {
	q.mark()
	q.each(func(m *message) bool {
		q.whole(m)
		return true
	})
	for id := range q.dedup {
		q.dirt.mark(kindDedup, q.name, id)
	}
	for id := range q.attempts {
		q.dirt.mark(kindAttempt, q.name, id)
	}
}

// kept carries out an operation and saves its changes before the response is sent.
func (s *Server) kept(do awsjson.Operation) awsjson.Operation {
	return func(ctx context.Context, body []byte) (any, error) {
		if s.owes() {
			if err := s.Flush(); err != nil {
				return nil, unkept(err)
			}
		}
		out, err := do(ctx, body)
		if failed := s.Flush(); failed != nil {
			return nil, unkept(failed)
		}
		return out, err
	}
}

func unkept(err error) error {
	return &awsjson.Error{
		Status: http.StatusServiceUnavailable, Type: "com.amazonaws.sqs#ServiceUnavailable", Query: "ServiceUnavailable;Receiver",
		Message: "What this server holds cannot be saved: " + err.Error(),
	}
}

func (s *Server) owes() bool {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	return s.keeper.owing != nil
}

// Flush saves unsaved changes. After a request there are none, unless its Save failed. The methods with which tests change a
// server (Duplicate, Shift) leave their changes to the next request. The changes of concurrent calls are saved together with
// the next Save.
func (s *Server) Flush() error {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if s.keeper.to == nil {
		return nil
	}
	places, rows, err := s.changes()
	if err != nil || len(rows) == 0 {
		return err
	}
	if err := s.keeper.to.Save(rows); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for p := range places {
			s.dirt.rows[p] = true
		}
		s.keeper.owing = err
		return fmt.Errorf("save %d rows: %w", len(rows), err)
	}
	s.keeper.owing = nil
	return nil
}

// changes takes the rows that changed, with their values of now.
func (s *Server) changes() (map[place]bool, []Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.dirt.rows
	s.dirt.rows = map[place]bool{}
	rows := make([]Row, 0, len(places))
	for p := range places {
		r := Row{Kind: p.kind, Queue: p.queue, ID: p.id}
		if v := s.value(p); v != nil {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, nil, fmt.Errorf("write %s %q of queue %q: %w", p.kind, p.id, p.queue, err)
			}
			r.Value = b
		}
		rows = append(rows, r)
	}
	return places, rows, nil
}

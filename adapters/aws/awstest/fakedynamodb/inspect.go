package fakedynamodb

import "encoding/json"

// Item is an item or a key in the protocol's form: attribute, type, value (Item{"pk": {"S": "a"}}).
type Item map[string]map[string]any

// Items returns all items of a table, in the order of a scan; nil if there is no such table. It consumes nothing, and
// includes expired items that are not yet deleted.
func (s *Server) Items(table string) []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[table]
	if t == nil {
		return nil
	}
	out := []Item{}
	for _, r := range t.rows {
		if r.now != nil {
			out = append(out, r.now.public())
		}
	}
	return out
}

func (m item) public() Item {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // values are made of what JSON has
	}
	out := Item{}
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// SetStale changes Options.Stale.
func (s *Server) SetStale(probability float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Stale = probability
}

// Conflict makes the next n actions that match (nil: any) conflict with a transaction in progress: a single write gets
// TransactionConflictException, a transaction is cancelled with the reason TransactionConflict. n < 0 has no end, 0 ends it.
// op is the operation ("UpdateItem", "TransactWriteItems"). Reads outside of transactions do not conflict.
func (s *Server) Conflict(n int, match func(op, table string, key Item) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conflicts, s.conflict = n, match
}

// conflicts reports whether an action conflicts.
func (r *request) conflicts(t *table, key item) bool {
	s := r.s
	if s.conflicts == 0 || s.conflict != nil && !s.conflict(r.op, t.name, key.public()) {
		return false
	}
	if s.conflicts > 0 {
		s.conflicts--
	}
	return true
}

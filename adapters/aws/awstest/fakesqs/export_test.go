package fakesqs

import (
	"cmp"
	"slices"
	"strings"
)

// Dump returns all rows that a Keeper should have.
func (s *Server) Dump() []Row {
	s.mu.Lock()
	before := s.dirt
	s.dirt = &dirt{rows: map[place]bool{}}
	for _, t := range s.tasks {
		s.dirt.mark(kindTask, "", t.id)
	}
	for name := range s.deleted {
		s.dirt.mark(kindDeleted, "", name)
	}
	for _, q := range s.queues {
		q.dirt = s.dirt
		q.markAll()
		q.dirt = before
	}
	s.mu.Unlock()
	_, rows, err := s.changes()
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirt = before
	slices.SortFunc(rows, CompareRows)
	return rows
}

// CompareRows orders rows.
func CompareRows(a, b Row) int {
	return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}

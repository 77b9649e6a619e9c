package redeliver

import (
	"container/heap"
	"time"
)

// Schedule holds values until they are due: deliveries that an adapter redelivers on its own. Values with the same due time
// leave it in the order of Put. Its size is not limited: the adapter must do that.
//
// The zero Schedule is empty and ready. Its methods must not be called concurrently.
type Schedule[T any] struct {
	items items[T]
	put   uint64
}

// Put adds a value that is due at the given time.
func (s *Schedule[T]) Put(due time.Time, value T) {
	s.put++
	heap.Push(&s.items, item[T]{due: due, order: s.put, value: value})
}

// Due removes and returns the values that are due at now, the earliest first.
func (s *Schedule[T]) Due(now time.Time) []T {
	var out []T
	for len(s.items) > 0 && !s.items[0].due.After(now) {
		out = append(out, heap.Pop(&s.items).(item[T]).value)
	}
	return out
}

// Next returns when the next value is due; ok is false if there is none.
func (s *Schedule[T]) Next() (due time.Time, ok bool) {
	if len(s.items) == 0 {
		return time.Time{}, false
	}
	return s.items[0].due, true
}

// Drop removes the values that match and returns how many there were.
func (s *Schedule[T]) Drop(match func(T) bool) int {
	kept := s.items[:0]
	for _, it := range s.items {
		if !match(it.value) {
			kept = append(kept, it)
		}
	}
	dropped := len(s.items) - len(kept)
	clear(s.items[len(kept):])
	s.items = kept
	heap.Init(&s.items)
	return dropped
}

// Len returns how many values are held.
func (s *Schedule[T]) Len() int { return len(s.items) }

type item[T any] struct {
	due   time.Time
	order uint64
	value T
}

// items is a heap.Interface, the earliest item first.
type items[T any] []item[T]

func (s items[T]) Len() int { return len(s) }

func (s items[T]) Less(i, j int) bool {
	if c := s[i].due.Compare(s[j].due); c != 0 {
		return c < 0
	}
	return s[i].order < s[j].order
}

func (s items[T]) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s *items[T]) Push(x any) { *s = append(*s, x.(item[T])) }

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	it := (*s)[last]
	(*s)[last] = item[T]{}
	*s = (*s)[:last]
	return it
}

package redeliver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestSchedule_AgainstSort compares random schedules with a sorted slice: what is due, in which order, and what is left.
func TestSchedule_AgainstSort(t *testing.T) {
	type entry struct{ due, id int }
	start := time.Unix(1_000_000, 0)
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var s Schedule[entry]
		var model []entry
		now := 0
		for id := range 300 {
			switch rnd.IntN(8) {
			case 0:
				now += rnd.IntN(4)
				got := s.Due(at(now))
				slices.SortStableFunc(model, func(a, b entry) int { return a.due - b.due })
				n := 0
				for n < len(model) && model[n].due <= now {
					n++
				}
				if !slices.Equal(got, model[:n]) {
					t.Fatalf("seed %d: due at %d: got %v, want %v", seed, now, got, model[:n])
				}
				model = slices.Delete(model, 0, n)
			case 1:
				odd := func(e entry) bool { return e.id%3 == 1 }
				before := len(model)
				model = slices.DeleteFunc(model, odd)
				if got := s.Drop(odd); got != before-len(model) {
					t.Fatalf("seed %d: dropped %d, want %d", seed, got, before-len(model))
				}
			default:
				e := entry{due: now + rnd.IntN(10), id: id}
				s.Put(at(e.due), e)
				model = append(model, e)
			}
			next, ok := s.Next()
			if ok != (len(model) > 0) || s.Len() != len(model) {
				t.Fatalf("seed %d: %d values, next %v, want %d", seed, s.Len(), ok, len(model))
			}
			if ok && !next.Equal(at(slices.MinFunc(model, func(a, b entry) int { return a.due - b.due }).due)) {
				t.Fatalf("seed %d: next is %v, model %v", seed, next, model)
			}
		}
	}
}

func TestSchedule_Zero(t *testing.T) {
	var s Schedule[int]
	if due, ok := s.Next(); ok || !due.IsZero() || len(s.Due(time.Now())) != 0 || s.Drop(func(int) bool { return true }) != 0 {
		t.Error("the zero Schedule is not empty")
	}
}

func ExampleSchedule() {
	var s Schedule[string]
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Put(now.Add(2*time.Second), "second")
	s.Put(now.Add(time.Second), "first")
	s.Put(now.Add(time.Minute), "later")
	fmt.Println(s.Due(now.Add(2 * time.Second)))
	due, _ := s.Next()
	fmt.Println(due.Sub(now))
	// Output:
	// [first second]
	// 1m0s
}

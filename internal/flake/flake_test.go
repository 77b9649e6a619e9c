package flake

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// attempt runs a case as Run does, without telling the real test: its failures, and how often it ran.
func attempt(t *testing.T, f func(t testing.TB, n int)) (failures []string, runs int) {
	t.Helper()
	for {
		runs++
		r := record(t, runs, func(t testing.TB) {
			Tolerate(t, time.Second)
			f(t, runs)
		})
		if r.counts() || runs == tries {
			return r.failures, runs
		}
	}
}

func TestRepeatsOnlyWhenSomethingStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time passes only when nothing runs: no tick is late by itself
		f, n := attempt(t, func(t testing.TB, _ int) {
			time.Sleep(time.Minute)
			t.Error("wrong")
		})
		if len(f) != 1 || n != 1 {
			t.Errorf("a failure on a quiet machine: %q, %d runs", f, n)
		}
		f, n = attempt(t, func(t testing.TB, n int) {
			if Longer(t, time.Second) < 4*time.Second {
				Note(t, 2*time.Second)
				t.Fatal("too late")
			}
		})
		if len(f) != 0 || n != 3 {
			t.Errorf("a machine that is too slow for two seconds: %q, %d runs", f, n)
		}
		f, n = attempt(t, func(t testing.TB, _ int) {
			Note(t, 2*time.Second)
			t.Fatal("always wrong")
		})
		if len(f) != 1 || n != tries {
			t.Errorf("a mistake on a machine that always stands still: %q, %d runs", f, n)
		}
	})
	Note(t, time.Hour) // of a test that does not run in Run: nothing happens
}

// TestNoLimit: a case that does not wait for real time fails when it fails.
func TestNoLimit(t *testing.T) {
	r := record(t, 1, func(t testing.TB) {
		Note(t, time.Hour)
		t.Error("wrong")
	})
	if !r.counts() || !r.Failed() {
		t.Error("the failure does not count")
	}
}

func TestEachTryCleansUp(t *testing.T) {
	var order []string
	Run(t, func(t testing.TB) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() {
			order = append(order, "second")
			if t.Context().Err() == nil {
				order = append(order, "before the context ended")
			}
		})
	})
	if !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("cleaned up %v", order)
	}
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("not skipped")
			}
		}()
		Run(t, func(t testing.TB) { t.Skip("as it should be") })
	})
}

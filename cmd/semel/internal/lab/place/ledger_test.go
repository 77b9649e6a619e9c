package place

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/semeltest/server"
)

// eachKind runs a test with a place for every kind of store.
func eachKind(t *testing.T, test func(t *testing.T, r *Place)) {
	t.Helper()
	for name, where := range map[string]func(t *testing.T) Where{
		"SQLite":     func(*testing.T) Where { return Where{} },
		"PostgreSQL": func(t *testing.T) Where { t.Helper(); return Where{Store: server.Database(t)} },
		"MySQL":      func(t *testing.T) Where { t.Helper(); return Where{Store: server.Shared(t, "mysql")} },
		"Redis": func(t *testing.T) Where {
			t.Helper()
			return Where{On: Embedded, Store: server.Shared(t, "redis")}
		},
		"DynamoDB": func(*testing.T) Where { return Where{On: AWS} },
	} {
		t.Run(name, func(t *testing.T) {
			setup, err := NewSetup(where(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := setup.Remove(t.Context()); err != nil {
					t.Error(err)
				}
				if err := setup.Close(); err != nil {
					t.Error(err)
				}
			})
			p, err := setup.Make(t.Context(), "test", t.TempDir(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Open(t.Context(), p, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, r)
		})
	}
}

// TestLedgerCountsWhatIsDone: only an effect key removes a duplicate, and every field can be read again.
func TestLedgerCountsWhatIsDone(t *testing.T) {
	eachKind(t, func(t *testing.T, r *Place) {
		start := time.UnixMicro(time.Now().UnixMicro())
		one := Effect{Key: "a", Message: "m-1", Amount: -100, Version: 3, Attempt: 2, Worker: 4, Life: 5, PID: 6, At: start}
		two := one
		two.At = start.Add(time.Second)
		keyed := Effect{Key: "b", Message: "m-2", Amount: 7, Attempt: 1, Worker: 1, Life: 1, PID: 1, At: start.Add(2 * time.Second)}
		other := keyed
		other.Key, other.At = "c", start.Add(3*time.Second)
		for _, add := range []struct {
			e   Effect
			key string
		}{{one, ""}, {two, ""}, {keyed, "k"}, {keyed, "k"}, {other, "k2"}} {
			if err := r.AddEffect(t.Context(), add.e, add.key); err != nil {
				t.Fatal(err)
			}
		}
		n, err := r.CountEffects(t.Context())
		if err != nil || n != 4 {
			t.Errorf("%d effects, %v", n, err)
		}
		got, err := r.Effects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if i > 0 && got[i].ID <= got[i-1].ID {
				t.Errorf("the ids do not grow: %+v", got)
			}
			got[i].ID = 0
		}
		if want := []Effect{one, two, keyed, other}; !slices.EqualFunc(got, want, func(a, b Effect) bool {
			at := a.At.Equal(b.At)
			a.At, b.At = time.Time{}, time.Time{}
			return at && a == b
		}) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestMarks: an id, a word, and when it was written. A read may be old for a while.
func TestMarks(t *testing.T) {
	eachKind(t, func(t *testing.T, r *Place) {
		m := r.Marks
		is := func(what string, want, got bool, err error) {
			t.Helper()
			if err != nil || got != want {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
		reads := func(want string) {
			t.Helper()
			got := "unread"
			for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
				var err error
				if got, err = m.Get(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			if got != want {
				t.Errorf("the mark is %q, want %q", got, want)
			}
		}
		reads("")
		first, err := m.Add(t.Context(), "a", "one")
		is("the first add", true, first, err)
		first, err = m.Add(t.Context(), "a", "two")
		is("the second add", false, first, err)
		reads("one")
		if err := m.Put(t.Context(), "a", "three"); err != nil {
			t.Error(err)
		}
		reads("three")
		held, err := m.Take(t.Context(), "a", "four", time.Hour)
		is("a lock that is held", false, held, err)
		time.Sleep(time.Millisecond) // its age is to be more than a microsecond
		held, err = m.Take(t.Context(), "a", "five", time.Microsecond)
		is("a lock that has expired", true, held, err)
		reads("five")
		held, err = m.Take(t.Context(), "b", "six", time.Hour)
		is("a lock that is free", true, held, err)
		if err := m.Delete(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		reads("")
	})
}

// TestSetupSupports: a scenario is refused only for the guard that needs what the place does not have.
func TestSetupSupports(t *testing.T) {
	mail := plan.Scenario{Name: "mail", Designs: map[plan.Guard]plan.Design{
		plan.GuardOff: plan.DualWrite, plan.GuardOn: plan.SemelOutbox,
	}}
	for where, want := range map[Where]bool{
		{}: true, {On: AWS}: false, {On: AWS, Store: "sqlite:" + filepath.Join(t.TempDir(), "a.db")}: true, {Queue: "sqlite:a.db", On: AWS}: false,
	} {
		setup, err := NewSetup(where, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := setup.Supports(mail, plan.GuardOn); (err == nil) != want {
			t.Errorf("%+v: %v", where, err)
		}
		if err := setup.Supports(mail, plan.GuardOff); err != nil {
			t.Errorf("%+v: %v", where, err)
		}
		if err := setup.Close(); err != nil {
			t.Error(err)
		}
	}
}

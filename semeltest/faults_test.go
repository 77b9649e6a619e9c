package semeltest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// TestNoFaults: with an empty plan the decorators change nothing.
func TestNoFaults(t *testing.T) {
	f := semeltest.NewFaults(semeltest.Plan{})
	t.Run("store", func(t *testing.T) {
		semeltest.RunStore(t, func(testing.TB) semeltest.StoreSetup {
			db, clock := openFake()
			return semeltest.StoreSetup{
				Store: semeltest.FaultyStore(db.Store(), f), Queue: semeltest.FaultyQueue(db.Queue("orders"), f),
				Advance: clock.advance, Ledger: memledger.Of(db.Store()),
			}
		})
	})
	t.Run("queue", func(t *testing.T) {
		semeltest.RunQueue(t, func(testing.TB) semeltest.QueueSetup {
			db, clock := openFake()
			return semeltest.QueueSetup{Queue: semeltest.FaultyQueue(db.Queue("orders"), f), Advance: clock.advance}
		})
	})
	if n := f.Counts(); len(n) > 0 {
		t.Errorf("an empty plan injected %v", n)
	}
}

func claim(raw string) driver.Claim {
	return driver.Claim{Key: driver.Key{Raw: raw}, Nonce: driver.Nonce{1}, Lease: time.Minute}
}

func has(t *testing.T, s *memory.Store, raw string) bool {
	t.Helper()
	_, ok, err := s.Record(context.Background(), driver.Key{Raw: raw})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestFaultsBeforeAfterLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		for _, x := range []struct {
			name       string
			plan       semeltest.Plan
			done, late bool
		}{
			{"before", semeltest.Plan{Before: 1}, false, false},
			{"after", semeltest.Plan{After: 1}, true, true},
			{"late", semeltest.Plan{Late: 1, LateBy: time.Minute}, false, true},
			{"other operation", semeltest.Plan{Before: 1, Only: []string{"finish"}}, true, true},
		} {
			inner := memory.NewStore()
			f := semeltest.NewFaults(x.plan)
			_, err := semeltest.FaultyStore(inner, f).Claim(ctx, claim("k"))
			if want := x.name != "other operation"; errors.Is(err, semeltest.ErrFault) != want {
				t.Errorf("%s: %v", x.name, err)
			}
			if has(t, inner, "k") != x.done {
				t.Errorf("%s: the claim was carried out: %v, wanted %v", x.name, !x.done, x.done)
			}
			f.Wait()
			if has(t, inner, "k") != x.late {
				t.Errorf("%s: later the claim was carried out: %v, wanted %v", x.name, !x.late, x.late)
			}
		}
	})
}

// TestFaultsLateCopies: a late write carries its original arguments, although the caller reuses its buffer.
func TestFaultsLateCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		db := memory.Open()
		q, s := db.Queue("q"), db.Store()
		if err := q.Send(ctx, driver.Message{ID: "m"}); err != nil {
			t.Fatal(err)
		}
		d, _ := q.Receive(ctx, 1)
		f := semeltest.NewFaults(semeltest.Plan{Late: 1, LateBy: time.Second})
		buf := []driver.Claim{claim("first")}
		_, _ = semeltest.FaultyStore(s, f).Claim(ctx, buf...)
		deadLetter := &driver.DeadLetter{ID: "first"}
		set := []driver.Settlement{{Receipt: d[0].Receipt, Action: driver.Dead, DeadLetter: deadLetter}}
		_, _ = semeltest.FaultyQueue(q, f).Settle(ctx, set...)
		buf[0], deadLetter.ID, set[0].Action = claim("second"), "second", driver.Ack
		f.Wait()
		ls, _ := q.DeadLetters(ctx, 0)
		if !has(t, s, "first") || has(t, s, "second") || len(ls) != 1 || ls[0].ID != "first" {
			t.Errorf("the late calls saw the caller's next values: dead letters %v", ls)
		}
	})
}

func TestFaultsUnknownItems(t *testing.T) {
	ctx := context.Background()
	inner := memory.NewStore()
	s := semeltest.FaultyStore(inner, semeltest.NewFaults(semeltest.Plan{Seed: 3, Unknown: .5}))
	var cs []driver.Claim
	for i := range 100 {
		cs = append(cs, claim(fmt.Sprint(i)))
	}
	g, err := s.Claim(ctx, cs...)
	if err != nil {
		t.Fatal(err)
	}
	var known, applied, lost int
	for i := range g {
		there := has(t, inner, cs[i].Key.Raw)
		switch {
		case g[i].Err == nil:
			known++
			if g[i].Verdict != driver.Acquired || g[i].Hold.Key != cs[i].Key || !there {
				t.Errorf("item %d returned %v for key %q", i, g[i].Verdict, g[i].Hold.Key.Raw)
			}
		case there:
			applied++
		default:
			lost++
		}
	}
	if known < 30 || applied < 10 || lost < 10 {
		t.Errorf("known %d, unknown and applied %d, unknown and lost %d", known, applied, lost)
	}
}

// TestFaultsItemError: a refused commit names the item by its place in the caller's batch, whatever was left out.
func TestFaultsItemError(t *testing.T) {
	ctx := context.Background()
	inner := memory.NewStore()
	f := semeltest.NewFaults(semeltest.Plan{Seed: 5, Unknown: .5})
	s := must[driver.Committer](semeltest.FaultyStore(inner, f))
	named := 0
	for round := range 20 {
		var w []driver.Work
		for i := range 10 {
			g, err := inner.Claim(ctx, claim(fmt.Sprint(round, "-", i)))
			if err != nil {
				t.Fatal(err)
			}
			e := &memory.Effects{}
			if i == 7 {
				e.Refuse(errors.New("no"))
			}
			w = append(w, driver.Work{Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete}, Effects: e})
		}
		_, err := s.Commit(ctx, w...)
		if item := (*driver.ItemError)(nil); errors.As(err, &item) {
			if named++; item.Index != 7 {
				t.Fatalf("round %d names item %d, wanted 7", round, item.Index)
			}
		}
	}
	if named == 0 {
		t.Error("no commit was refused")
	}
}

// TestFaultsRepeat: the same seed does the same to the same calls.
func TestFaultsRepeat(t *testing.T) {
	run := func(seed uint64) (trace []string) {
		f := semeltest.NewFaults(semeltest.Plan{Seed: seed, Before: .2, After: .2, Unknown: .2})
		s := semeltest.FaultyStore(memory.NewStore(), f)
		for i := range 50 {
			g, err := s.Claim(context.Background(), claim(fmt.Sprint(i)))
			trace = append(trace, fmt.Sprint(err, len(g) > 0 && g[0].Err != nil))
		}
		return append(trace, fmt.Sprint(f.Counts()))
	}
	if a, b := run(1), run(1); !reflect.DeepEqual(a, b) {
		t.Errorf("seed 1 differs from seed 1:\n%v\n%v", a, b)
	}
	if reflect.DeepEqual(run(1), run(2)) {
		t.Error("seeds 1 and 2 do the same")
	}
}

func TestFaultsOutage(t *testing.T) {
	ctx := context.Background()
	f := semeltest.NewFaults(semeltest.Plan{})
	q := semeltest.FaultyQueue(memory.NewQueue("q"), f)
	f.Outage(true)
	if err := must[driver.Sender](q).Send(ctx, driver.Message{ID: "m"}); !errors.Is(err, semeltest.ErrFault) {
		t.Errorf("send during the outage: %v", err)
	}
	if _, err := q.Receive(ctx, 1); !errors.Is(err, semeltest.ErrFault) {
		t.Errorf("receive during the outage: %v", err)
	}
	f.Outage(false)
	if err := must[driver.Sender](q).Send(ctx, driver.Message{ID: "m"}); err != nil {
		t.Errorf("send after the outage: %v", err)
	}
	if d, err := q.Receive(ctx, 1); err != nil || len(d) != 1 {
		t.Errorf("receive after the outage: %v, %v", d, err)
	}
	if n := f.Counts()["outage"]; n != 2 {
		t.Errorf("%d calls fell into the outage, wanted 2", n)
	}
}

// TestFaultsTransactions: a transaction whose Begin lost its response is rolled back. A commit that lost its response
// is not.
func TestFaultsTransactions(t *testing.T) {
	ctx := context.Background()
	inner := memory.NewStore()
	begin := func(p semeltest.Plan) (driver.Tx, []driver.Grant, error) {
		return must[driver.Transactor](semeltest.FaultyStore(inner, semeltest.NewFaults(p))).Begin(ctx, claim("k"))
	}
	for _, p := range []semeltest.Plan{{Before: 1, Only: []string{"begin"}}, {After: 1, Only: []string{"begin"}}, {Late: 1, Only: []string{"begin"}}} {
		if tx, _, err := begin(p); err == nil || tx != nil {
			t.Fatalf("begin returned %v, %v", tx, err)
		}
	}
	for _, x := range []struct {
		plan semeltest.Plan
		want bool
	}{{semeltest.Plan{Before: 1, Only: []string{"tx commit"}}, false}, {semeltest.Plan{After: 1, Only: []string{"tx commit"}}, true}} {
		tx, g, err := begin(x.plan)
		if err != nil || g[0].Verdict != driver.Acquired {
			t.Fatalf("begin: %v, %v", g, err)
		}
		err = tx.Commit(ctx, driver.Work{Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete}})
		if !errors.Is(err, semeltest.ErrFault) || has(t, inner, "k") != x.want {
			t.Errorf("commit returned %v, record %v", err, !x.want)
		}
	}
}

// must returns an interface that s is known to have.
func must[T any](s any) T {
	t, ok := driver.As[T](s)
	if !ok {
		panic(fmt.Sprintf("%T is no %T", s, new(T)))
	}
	return t
}

// TestFaultsKeepInterfaces: a decorator has the optional interfaces of what it decorates, and no others.
func TestFaultsKeepInterfaces(t *testing.T) {
	s, f := memory.NewStore(), semeltest.NewFaults(semeltest.Plan{})
	q := memory.NewQueue("q")
	set := func(x any) (n [10]bool) {
		_, n[0] = driver.As[driver.Committer](x)
		_, n[1] = driver.As[driver.Transactor](x)
		_, n[2] = driver.As[driver.RecordInspector](x)
		_, n[3] = driver.As[driver.Operator](x)
		_, n[4] = driver.As[driver.Sweeper](x)
		_, n[5] = driver.As[driver.Sender](x)
		_, n[6] = driver.As[driver.QueueInspector](x)
		_, n[7] = driver.As[driver.DeadLetterQueue](x)
		_, n[8] = driver.As[driver.StepStore](x)
		_, n[9] = driver.As[driver.DeadLetterKeeper](x)
		return n
	}
	for _, inner := range []driver.Store{
		s, struct{ driver.Store }{s},
		struct {
			driver.Store
			driver.Committer
			driver.Operator
		}{s, s, s},
		struct {
			driver.Store
			driver.Transactor
			driver.Sweeper
		}{s, s, s},
	} {
		if got, want := set(semeltest.FaultyStore(inner, f)), set(inner); got != want {
			t.Errorf("%T: has %v, wanted %v", inner, got, want)
		}
	}
	for _, inner := range []driver.Queue{
		q, struct{ driver.Queue }{q}, keeper{struct{ driver.Queue }{q}, q},
		struct {
			driver.Queue
			driver.Sender
			driver.QueueInspector
		}{q, q, q},
	} {
		if got, want := set(semeltest.FaultyQueue(inner, f)), set(inner); got != want {
			t.Errorf("%T: has %v, wanted %v", inner, got, want)
		}
	}
}

// keeper is a queue whose dead letters are in another one.
type keeper struct {
	driver.Queue
	deadLetters *memory.Queue
}

func (k keeper) DeadLetterQueue() driver.DeadLetterQueue { return k.deadLetters }

// TestFaultsInDeadLettersElsewhere: the faults of a queue are those of its dead letters, wherever it keeps them.
func TestFaultsInDeadLettersElsewhere(t *testing.T) {
	q := memory.NewQueue("q")
	dlq, ok := driver.DeadLettersOf(semeltest.FaultyQueue(keeper{struct{ driver.Queue }{q}, q}, semeltest.NewFaults(semeltest.Plan{Before: 1})))
	if !ok {
		t.Fatal("the faulty queue keeps no dead letters")
	}
	if err := dlq.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "l"}); !errors.Is(err, semeltest.ErrFault) {
		t.Errorf("put a dead letter: %v, wanted a fault", err)
	}
}

package semeltest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// stepCases test the journals of a driver.StepStore (mode E).
func stepCases() []suiteCase[StoreSetup] {
	with := func(f func(b *stepBench)) func(testing.TB, StoreSetup) {
		return func(t testing.TB, s StoreSetup) {
			st, ok := driver.As[driver.StepStore](s.Store)
			if !ok {
				t.Log("left out: the store is no driver.StepStore")
				return
			}
			b := &stepBench{bench: newBench(t, s), st: st}
			f(b)
			b.bad.report(t)
		}
	}
	return []suiteCase[StoreSetup]{
		{"journals, random histories", with(testStepsRandom)},
		{"journals are guarded", with(testStepsGuarded)},
		{"journals, writes repeated", with(testStepsRepeated)},
		{"journals, all writes of a call or none", with(testStepsTogether)},
		{"journals carry effects", with(testStepsEffects)},
		{"journals of epochs and versions", with(testStepsEpochs)},
		{"journals go with their record", with(testStepsPurged)},
		{"FM63 journals, the loser of a race writes nothing", with(testFM63StepsRace)},
		{"journals, one run writes from many goroutines", with(testStepsConcurrent)},
		{"journals of a thousand steps", with(testStepsThousand)},
		{"journals, large results", with(testStepsLarge)},
		{"journals, hostile names", with(testStepsNames)},
		{"journals, a done context", with(testStepsDoneContext)},
	}
}

// stepBench runs journals on one store.
type stepBench struct {
	*bench
	st driver.StepStore
}

func (b *stepBench) claim(k driver.Key) driver.Hold {
	b.t.Helper()
	return mustClaim(b.t, b.Store, k)[0].Hold
}

// handOver gives a key to the next attempt.
func (b *stepBench) handOver(h driver.Hold) driver.Hold {
	b.t.Helper()
	mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: h, Final: driver.Release, Ran: driver.MaybeApplied, Keep: keep})
	return b.claim(h.Key)
}

func (b *stepBench) write(h driver.Hold, want driver.Outcome, w ...driver.StepWrite) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if o, err := b.st.WriteSteps(ctx, h, w...); err != nil || o != want {
		b.t.Fatalf("write of %s returned %v and %v, wanted %v", texts(w), o, err, want)
	}
}

func texts(w []driver.StepWrite) string {
	all := make([]string, len(w))
	for i := range w {
		all[i] = fmt.Sprintf("{kind %d, step %q}", w[i].Kind, w[i].Name)
	}
	return strings.Join(all, " ")
}

func (b *stepBench) rows(h driver.Hold) []driver.Step {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	rows, err := b.st.Steps(ctx, h)
	if err != nil {
		b.t.Fatalf("steps of key %q: %v", h.Key.Raw, err)
	}
	return rows
}

// same compares a journal with the expected one.
func (b *stepBench) same(when string, h driver.Hold, want []driver.Step) {
	b.t.Helper()
	got := b.rows(h)
	if len(got) != len(want) {
		b.bad.add("%s: the journal has %d rows, the table says %d", when, len(got), len(want))
		return
	}
	for i := range got {
		for _, d := range diffStep(got[i], want[i]) {
			b.bad.add("%s: row %d (%q): %s", when, i, want[i].Name, d)
		}
	}
}

func diffStep(got, want driver.Step) differ {
	var d differ
	d.eq("name", got.Name == want.Name, got.Name, want.Name)
	d.eq("state", got.State == want.State, got.State, want.State)
	d.eq("undo", got.Undo == want.Undo, got.Undo, want.Undo)
	d.eq("seq", got.Seq == want.Seq, got.Seq, want.Seq)
	d.eq("token", got.Token == want.Token, got.Token, want.Token)
	d.eq("nonce", got.Nonce == want.Nonce, got.Nonce, want.Nonce)
	d.eq("result", bytes.Equal(got.Result, want.Result), len(got.Result), len(want.Result))
	d.eq("failures", got.Failures == want.Failures, got.Failures, want.Failures)
	d.eq("reason", got.Reason == want.Reason, got.Reason, want.Reason)
	d.eq("updated_at", !got.UpdatedAt.IsZero(), got.UpdatedAt, "a time")
	return d
}

// seedOf draws the seed of a random test; SEMEL_SEED repeats one.
func seedOf(t testing.TB) uint64 {
	v := os.Getenv("SEMEL_SEED")
	if v == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("SEMEL_SEED: %v", err)
	}
	return n
}

// testStepsRandom writes random journals, by present and previous attempts, and compares each result and row with the table.
func testStepsRandom(b *stepBench) {
	seed := seedOf(b.t)
	r := rand.New(rand.NewPCG(seed, 2))
	rounds := 40
	if b.Advance != nil {
		rounds = 400
	}
	for i := range 4 {
		c := b.newCell(fmt.Sprintf("key %d", i))
		old := []driver.Hold{c.held}
		var model []driver.Step
		next := func() {
			b.do([]*cell{c}, []request{claimFor(long).make(c)})
			old = append(old, c.held)
		}
		next()
		for range rounds {
			if r.IntN(10) == 0 {
				b.do([]*cell{c}, []request{finishWith(driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied}).make(c)})
				next()
			}
			h := c.held
			if r.IntN(5) == 0 {
				h = old[r.IntN(len(old))]
			}
			w := randomWrites(r, model)
			put, _, want := driver.DecideSteps(c.model, model, h, w, b.now)
			ctx, cancel := b.call()
			got, err := b.st.WriteSteps(ctx, h, w...)
			cancel()
			if err != nil {
				b.t.Fatalf("seed %d: write of %s: %v", seed, texts(w), err)
			}
			b.outcome(c, "write of "+texts(w), got, want)
			model = mergeSteps(model, put)
			b.same(c.name, c.held, model)
			if b.bad.total > 0 {
				b.bad.add("SEMEL_SEED=%d repeats it", seed)
				return
			}
		}
		b.inspect(c) // journals leave the record alone
	}
}

func mergeSteps(rows, put []driver.Step) []driver.Step {
	rows = slices.Clone(rows)
	for _, p := range put {
		if i := slices.IndexFunc(rows, func(s driver.Step) bool { return s.Name == p.Name }); i >= 0 {
			rows[i] = p
		} else {
			rows = append(rows, p)
		}
	}
	return rows
}

// randomWrites draws a call that is mostly valid.
func randomWrites(r *rand.Rand, rows []driver.Step) []driver.StepWrite {
	w := make([]driver.StepWrite, 1+r.IntN(3)*r.IntN(2))
	for i := range w {
		x := &w[i]
		*x = driver.StepWrite{
			Kind: driver.RegisterStep + driver.StepWriteKind(r.IntN(3)), Name: "step-" + strconv.Itoa(r.IntN(4)),
			Undo: r.IntN(3) > 0, Again: r.IntN(4) == 0,
		}
		back := slices.ContainsFunc(rows, func(s driver.Step) bool { return s.Name == "" })
		if back && r.IntN(6) > 0 || r.IntN(12) == 0 {
			x.Kind = driver.UndoStep + driver.StepWriteKind(r.IntN(3))
		}
		if r.IntN(25) == 0 {
			x.Kind, x.Name = driver.CompensateRun, ""
		}
		switch x.Kind {
		case driver.FinishStep:
			x.Result = []byte(fmt.Sprintf(`{"n":%d}`, r.IntN(1000)))[:r.IntN(2)*8]
		case driver.FailUndo:
			if i := slices.IndexFunc(rows, func(s driver.Step) bool { return s.Name == x.Name }); i >= 0 {
				x.Failures = rows[i].Failures + r.IntN(2)
			}
			x.Reason = "refused: " + strconv.Itoa(r.IntN(9))
		case driver.CompensateRun:
			x.Reason = "it failed"
		}
	}
	return w
}

func finishOf(name string) driver.StepWrite {
	return driver.StepWrite{Kind: driver.FinishStep, Name: name, Result: []byte(`"` + name + `"`)}
}

package semeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/semel-dev/semel/driver"
)

// testStepsGuarded writes with every wrong hold, and after every end of the run.
func testStepsGuarded(b *stepBench) {
	ks := keys(5, "guarded-steps-%d")
	h := b.claim(ks[0])
	for name, tweak := range map[string]func(h *driver.Hold){
		"an older token": func(h *driver.Hold) { h.Token-- }, "a newer token": func(h *driver.Hold) { h.Token++ },
		"another nonce": func(h *driver.Hold) { h.Nonce = newNonce() }, "another generation": func(h *driver.Hold) { h.Generation++ },
		"another epoch": func(h *driver.Hold) { h.Epoch++ }, "another key": func(h *driver.Hold) { h.Key.Raw += "x" },
		"another tenant": func(h *driver.Hold) { h.Key.Tenant = "other" },
	} {
		wrong := h
		tweak(&wrong)
		ctx, cancel := b.call()
		if o, err := b.st.WriteSteps(ctx, wrong, finishOf("s")); err != nil || o != driver.Lost {
			b.bad.add("a write with %s returned %v and %v, wanted lost", name, o, err)
		}
		cancel()
	}
	b.same("after writes of others", h, nil)
	b.write(h, driver.Applied, finishOf("s"))
	next := b.handOver(h)
	b.write(h, driver.Lost, finishOf("t"))
	b.write(h, driver.Lost, finishOf("s")) // applied once, but it is not the holder's any more
	b.write(next, driver.Applied, finishOf("u"))
	for i, f := range []driver.Final{driver.Complete, driver.Fail, driver.Release, driver.Park} {
		h := b.claim(ks[1+i])
		b.write(h, driver.Applied, finishOf("s"))
		mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: h, Final: f, Ran: driver.MaybeApplied, RetryAfter: retry, Keep: keep})
		b.write(h, driver.Lost, finishOf("t"))
		if rows := b.rows(h); len(rows) != 1 || rows[0].State != driver.StepDone {
			b.bad.add("after %v the journal is %+v, wanted the one finished step", f, rows)
		}
	}
}

// testStepsRepeated repeats every write, as a runner does that got no response.
func testStepsRepeated(b *stepBench) {
	h := b.claim(keys(1, "repeated-steps-%d")[0])
	writes := [][]driver.StepWrite{
		{{Kind: driver.RegisterStep, Name: "a", Undo: true}},
		{{Kind: driver.RegisterStep, Name: "b", Undo: true}, {Kind: driver.StartStep, Name: "b"}},
		{finishOf("a"), finishOf("c")},
		{{Kind: driver.CompensateRun, Reason: "why"}},
		{{Kind: driver.UndoStep, Name: "b"}},
		{{Kind: driver.FailUndo, Name: "b", Failures: 1, Reason: "once"}},
		{{Kind: driver.FailUndo, Name: "b", Failures: 2, Reason: "twice"}},
		{{Kind: driver.FinishUndo, Name: "b"}},
		{{Kind: driver.UndoStep, Name: "a"}},
		{{Kind: driver.FinishUndo, Name: "a"}},
	}
	for _, w := range writes {
		b.write(h, driver.Applied, w...)
		before := b.rows(h)
		for range 2 {
			b.write(h, driver.Applied, w...)
		}
		b.same("after "+texts(w)+" twice more", h, before)
	}
	want := map[string]driver.StepState{
		"a": driver.StepUndone, "b": driver.StepUndone, "c": driver.StepDone, "": driver.RunCompensating,
	}
	for _, s := range b.rows(h) {
		if s.State != want[s.Name] {
			b.bad.add("step %q ends as %v, wanted %v", s.Name, s.State, want[s.Name])
		}
		if s.Name == "b" && s.Failures != 2 {
			b.bad.add("step b has %d failures, wanted 2: a repeated write counts once", s.Failures)
		}
		if s.Name == "a" && string(s.Result) != `"a"` {
			b.bad.add("step a lost its result by its compensation: %q", s.Result)
		}
	}
}

// testStepsTogether mixes an allowed and a refused write in one call.
func testStepsTogether(b *stepBench) {
	h := b.claim(keys(1, "together-%d")[0])
	b.write(h, driver.Applied, finishOf("a"))
	before := b.rows(h)
	b.write(h, driver.Lost, finishOf("b"), driver.StepWrite{Kind: driver.UndoStep, Name: "a"})
	b.same("after a call that is refused", h, before)
	b.write(h, driver.Applied)
	b.same("after an empty call", h, before)
	other := h
	other.Nonce = newNonce()
	b.write(other, driver.Lost)
}

// testStepsEffects commits effects with the rows that carry them: both or none, and once however often it is repeated.
func testStepsEffects(b *stepBench) {
	c, ok := effects(b.t, b.StoreSetup)
	if !ok {
		return
	}
	effect := func(id string) any {
		buf := b.Ledger.Buffer(c)
		b.Ledger.Add(buf, id)
		return buf
	}
	id := func(s string) driver.Key { return driver.Key{Raw: "steps-" + s} }
	with := func(name string, e any) driver.StepWrite {
		return driver.StepWrite{Kind: driver.FinishStep, Name: name, Result: []byte("1"), Effects: e}
	}
	h := b.claim(keys(1, "step-effects-%d")[0])
	for range 3 {
		b.write(h, driver.Applied, with("a", effect("steps-a")))
	}
	b.Ledger.counts(b.t, 1, id("a"))
	refused := b.Ledger.Buffer(c)
	b.Ledger.Add(refused, "steps-c")
	b.Ledger.Refuse(refused)
	before := b.rows(h)
	for at := range 3 {
		w := []driver.StepWrite{with("b1", effect("steps-b")), with("b2", effect("steps-b"))}
		w = slices.Insert(w, at, with("c", refused))
		ctx, cancel := b.call()
		_, err := b.st.WriteSteps(ctx, h, w...)
		cancel()
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != at {
			b.bad.add("refused effects of write %d returned %v, wanted an ItemError that names it", at, err)
		}
		b.same("after refused effects", h, before)
	}
	b.Ledger.counts(b.t, 0, id("b"), id("c"))
	ctx, cancel := b.call()
	defer cancel()
	if _, err := b.st.WriteSteps(ctx, h, with("d", new(int))); err == nil {
		b.bad.add("effects of type *int were taken")
	}
	b.same("after effects of an unknown type", h, before)
	b.write(h, driver.Applied, driver.StepWrite{Kind: driver.RegisterStep, Name: "e", Undo: true},
		driver.StepWrite{Kind: driver.CompensateRun}, driver.StepWrite{Kind: driver.UndoStep, Name: "e"})
	for range 2 {
		b.write(h, driver.Applied, driver.StepWrite{Kind: driver.FinishUndo, Name: "e", Effects: effect("steps-e")})
	}
	b.Ledger.counts(b.t, 1, id("e"))
	next := b.handOver(h)
	b.write(h, driver.Lost, with("f", effect("steps-f")))
	b.write(next, driver.Lost, with("f", effect("steps-f"))) // the run compensates
	b.Ledger.counts(b.t, 0, id("f"))
}

// testStepsEpochs: a re-run under new effect keys has a fresh journal, and so has another version of an entity.
func testStepsEpochs(b *stepBench) {
	ks := keys(2, "epochs-%d")
	h := b.claim(ks[0])
	b.write(h, driver.Applied, finishOf("a"))
	mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: h, Final: driver.Fail, Compensated: true, Keep: keep})
	if rows := b.rows(h); len(rows) != 1 {
		b.bad.add("the journal of the compensated epoch has %d rows, wanted 1: people look at it", len(rows))
	}
	if op, ok := driver.As[driver.Operator](b.Store); ok {
		r, o, err := op.Operate(b.t.Context(), driver.Operation{Kind: driver.Redrive, Key: ks[0], Token: h.Token, Generation: 1, Keep: keep})
		if err != nil || o != driver.Applied || r.Epoch != 1 {
			b.t.Fatalf("redrive returned %v, epoch %d, %v; wanted applied, epoch 1", o, r.Epoch, err)
		}
		next := b.claim(ks[0])
		b.same("in the new epoch", next, nil)
		b.write(next, driver.Applied, finishOf("a"))
		b.write(h, driver.Lost, finishOf("b"))
	}
	var last driver.Hold
	for i, v := range []driver.Version{driver.TextVersion("1"), driver.TextVersion("2")} {
		g, err := b.Store.Claim(b.t.Context(), driver.Claim{Key: ks[1], Nonce: newNonce(), Lease: long, Version: v})
		if err != nil || g[0].Verdict != driver.Acquired {
			b.t.Fatalf("claim of version %d returned %+v, %v", i+1, g, err)
		}
		b.same("of a new version", g[0].Hold, nil)
		b.write(g[0].Hold, driver.Applied, finishOf("a"), finishOf(fmt.Sprint("b", i)))
		if i > 0 {
			b.write(last, driver.Lost, finishOf("c"))
		}
		mustFinish(b.t, b.Store, driver.Applied, complete(g[0]))
		last = g[0].Hold
	}
	if rows := b.rows(last); len(rows) != 2 || rows[1].Name != "b1" {
		b.bad.add("the journal of version 2 is %+v, wanted steps a and b1", rows)
	}
}

// testStepsPurged: a purge of a record removes its journals, so that a later run of the key begins afresh.
func testStepsPurged(b *stepBench) {
	sw, ok := driver.As[driver.Sweeper](b.Store)
	if !ok {
		b.t.Log("left out: the store has no driver.Sweeper")
		return
	}
	ks := keys(2, "purged-steps-%d")
	h, kept := b.claim(ks[0]), b.claim(ks[1])
	b.write(h, driver.Applied, finishOf("a"), finishOf("b"))
	b.write(kept, driver.Applied, finishOf("a"))
	mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: h, Final: driver.Complete, Keep: short})
	b.wait()
	if got, _, err := sw.Sweep(b.t.Context(), 0, 100); err != nil || got.Purged != 1 {
		b.t.Fatalf("sweep returned %+v, %v; wanted one record purged", got, err)
	}
	b.same("of a purged record", h, nil)
	b.same("of the key that was purged", b.claim(ks[0]), nil)
	if rows := b.rows(kept); len(rows) != 1 {
		b.bad.add("the journal of another key has %d rows after the sweep, wanted 1", len(rows))
	}
	b.write(h, driver.Lost, finishOf("c"))
}

// testFM63StepsRace: during a takeover the previous holder and the next write at the same time.
func testFM63StepsRace(b *stepBench) {
	for round := range 4 {
		h := b.claim(keys(1, fmt.Sprintf("race-%d-", round)+"%d")[0])
		applied := make([][]string, 8)
		var wg sync.WaitGroup
		hold, next := h, make(chan driver.Hold, 4)
		for i := range applied {
			wg.Go(func() {
				h := hold
				if i >= 4 {
					h = <-next
				}
				for n := range 12 {
					name := fmt.Sprintf("%d-%d", i, n)
					o, err := b.st.WriteSteps(b.t.Context(), h, finishOf(name))
					if err != nil || o == driver.Unknown {
						b.bad.add("a write during a takeover returned %v and %v", o, err)
						return
					}
					if o == driver.Lost {
						if i >= 4 {
							b.bad.add("a write of the present holder was lost")
						}
						return
					}
					applied[i] = append(applied[i], name)
				}
			})
		}
		h = b.handOver(h)
		for range 4 {
			next <- h
		}
		wg.Wait()
		b.raceRows(h, applied)
	}
}

// raceRows checks that exactly the applied rows are stored, in order, those of the previous holder first.
func (b *stepBench) raceRows(h driver.Hold, applied [][]string) {
	var want []string
	for _, names := range applied {
		want = append(want, names...)
	}
	rows := b.rows(h)
	if len(rows) != len(want) {
		b.bad.add("%d writes were applied, and the journal has %d rows", len(want), len(rows))
	}
	handed := false
	for i, s := range rows {
		handed = handed || s.Token == h.Token
		if s.Seq != i+1 || !slices.Contains(want, s.Name) {
			b.bad.add("row %d is %q with number %d, applied %v", i, s.Name, s.Seq, slices.Contains(want, s.Name))
		}
		if handed && s.Token != h.Token {
			b.bad.add("row %q of the previous holder (token %d) came behind one of token %d", s.Name, s.Token, h.Token)
		}
	}
}

// testStepsConcurrent writes the steps of one run from many goroutines, as a run with items does.
func testStepsConcurrent(b *stepBench) {
	h := b.claim(keys(1, "concurrent-%d")[0])
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 25 {
				w := finishOf(fmt.Sprintf("%d-%d", i, n))
				o, err := b.st.WriteSteps(b.t.Context(), h, w)
				for errors.Is(err, driver.ErrBlocked) { // by a write of the others: the caller repeats it
					o, err = b.st.WriteSteps(b.t.Context(), h, w)
				}
				if err != nil || o != driver.Applied {
					b.bad.add("a write of one of many goroutines returned %v and %v", o, err)
				}
			}
		})
	}
	wg.Wait()
	rows := b.rows(h)
	if len(rows) != 200 {
		b.bad.add("the journal has %d rows, wanted 200", len(rows))
	}
	for i, s := range rows {
		if s.Seq != i+1 {
			b.bad.add("row %d has number %d", i, s.Seq)
		}
	}
}

func testStepsThousand(b *stepBench) {
	h := b.claim(keys(1, "thousand-steps-%d")[0])
	var w []driver.StepWrite
	for i := range 1000 {
		w = append(w, finishOf(fmt.Sprintf("step-%d", i)))
	}
	for i := 0; i < 900; i += 100 {
		b.write(h, driver.Applied, w[i:i+100]...)
	}
	for i := 900; i < 1000; i += 10 {
		b.write(h, driver.Applied, w[i:i+10]...)
	}
	rows := b.rows(h)
	if len(rows) != 1000 {
		b.t.Fatalf("the journal has %d rows, wanted 1000", len(rows))
	}
	for i, s := range rows {
		if s.Name != w[i].Name || s.Seq != i+1 || !bytes.Equal(s.Result, w[i].Result) {
			b.t.Fatalf("row %d is %q with number %d and result %q", i, s.Name, s.Seq, s.Result)
		}
	}
}

// testStepsLarge stores results of many sizes and bytes.
func testStepsLarge(b *stepBench) {
	h := b.claim(keys(1, "large-steps-%d")[0])
	limit := b.Store.Features().MaxResult
	for _, n := range []int{0, 1, 255, 8 << 10, 64 << 10, 1 << 20} {
		if limit > 0 && n > limit {
			continue
		}
		result := make([]byte, n)
		for i := range result {
			result[i] = byte(i * 7)
		}
		name := fmt.Sprint("size-", n)
		b.write(h, driver.Applied, driver.StepWrite{Kind: driver.FinishStep, Name: name, Result: result})
		rows := b.rows(h)
		if last := rows[len(rows)-1]; last.Name != name || !bytes.Equal(last.Result, result) {
			b.bad.add("a result of %d bytes was returned as %d bytes, or changed", n, len(last.Result))
		}
	}
}

// testStepsNames writes steps whose names look alike, or like something else.
func testStepsNames(b *stepBench) {
	names := []string{
		"a", "A", "a ", " a", "ä", "a\u0308", "a|b", `a\b`, "a'b", `a"b`, "a;--", "%", "_", "0", "null", "Straße", "STRASSE",
		"日本語", "a/b", strings.Repeat("n", 512),
	}
	h := b.claim(keys(1, "names-%d")[0])
	for _, n := range names {
		b.write(h, driver.Applied, finishOf(n))
	}
	rows := b.rows(h)
	if len(rows) != len(names) {
		b.bad.add("%d steps became %d rows", len(names), len(rows))
	}
	for i, s := range rows {
		if i < len(names) && s.Name != names[i] {
			b.bad.add("step %q was returned as %q", names[i], s.Name)
		}
	}
}

// testStepsDoneContext writes with a context that is done: it returns an error or a definite outcome, and can be repeated.
func testStepsDoneContext(b *stepBench) {
	done, cancel := context.WithCancel(b.t.Context())
	cancel()
	h := b.claim(keys(1, "done-steps-%d")[0])
	if o, err := b.st.WriteSteps(done, h, finishOf("a")); err == nil && o == driver.Lost {
		b.bad.add("a write with a done context returned lost")
	} else if errors.Is(err, driver.ErrNotCommitted) && len(b.rows(h)) > 0 {
		b.bad.add("a write that certainly did not happen is there")
	}
	b.write(h, driver.Applied, finishOf("a"))
	if rows := b.rows(h); len(rows) != 1 {
		b.bad.add("the journal has %d rows, wanted 1", len(rows))
	}
}

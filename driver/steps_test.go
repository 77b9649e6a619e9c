package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// rowOf is a row in a state, written by the holder of token 7 unless tweaked.
func rowOf(name string, s StepState, tweak ...func(*Step)) Step {
	r := Step{Name: name, State: s, Seq: 1, Undo: true, Token: 7, Nonce: mine, UpdatedAt: t0}
	if s == StepDone {
		r.Result = []byte(`"r"`)
	}
	for _, f := range tweak {
		f(&r)
	}
	return r
}

func byOther(s *Step)   { s.Token, s.Nonce = 6, other }
func bare(s *Step)      { s.Undo = false }
func failed(s *Step)    { s.Failures = 2 }
func backwards() []Step { return []Step{{State: RunCompensating, Seq: 9, Token: 7, Nonce: mine}} }

// TestDecideSteps has what is expected written by hand from protocol section 7.
func TestDecideSteps(t *testing.T) {
	const (
		put    = 'p' // applied, and written
		again  = 'r' // applied, a repetition: nothing is written
		lost   = 'l'
		noneAt = StepState(0)
	)
	register := StepWrite{Kind: RegisterStep, Name: "s", Undo: true}
	registerBare := StepWrite{Kind: RegisterStep, Name: "s"}
	takeBack := StepWrite{Kind: RegisterStep, Name: "s", Undo: true, Again: true}
	start := StepWrite{Kind: StartStep, Name: "s"}
	startAgain := StepWrite{Kind: StartStep, Name: "s", Again: true}
	finish := StepWrite{Kind: FinishStep, Name: "s", Result: []byte(`1`)}
	undo := StepWrite{Kind: UndoStep, Name: "s"}
	fail1 := StepWrite{Kind: FailUndo, Name: "s", Failures: 1, Reason: "no"}
	fail3 := StepWrite{Kind: FailUndo, Name: "s", Failures: 3, Reason: "no"}
	undone := StepWrite{Kind: FinishUndo, Name: "s"}
	for _, c := range []struct {
		name  string
		rows  []Step
		back  bool
		w     StepWrite
		want  rune
		state StepState
	}{
		{"register", nil, false, register, put, StepRegistered},
		{"register twice", []Step{rowOf("s", StepRegistered)}, false, register, again, noneAt},
		{"register what another registered", []Step{rowOf("s", StepRegistered, byOther)}, false, register, put, StepRegistered},
		{"register a compensation later", []Step{rowOf("s", StepRegistered, bare)}, false, register, put, StepRegistered},
		{"register once more without", []Step{rowOf("s", StepRegistered)}, false, registerBare, again, noneAt},
		{"register, the start is known", []Step{rowOf("s", StepStarted)}, false, register, again, noneAt},
		{"register what another started", []Step{rowOf("s", StepStarted, byOther)}, false, register, lost, noneAt},
		{"register a compensation of what is done", []Step{rowOf("s", StepDone, bare)}, false, register, lost, noneAt},
		{"register backwards", nil, true, register, lost, noneAt},
		{"register backwards, repeated", []Step{rowOf("s", StepRegistered)}, true, register, again, noneAt},
		{"take a start back", []Step{rowOf("s", StepStarted)}, false, takeBack, put, StepRegistered},
		{"take another's start back", []Step{rowOf("s", StepStarted, byOther)}, false, takeBack, lost, noneAt},
		{"take back what is done", []Step{rowOf("s", StepDone)}, false, takeBack, again, noneAt},
		{"start", nil, false, start, put, StepStarted},
		{"start what is registered", []Step{rowOf("s", StepRegistered, byOther)}, false, start, put, StepStarted},
		{"start twice", []Step{rowOf("s", StepStarted)}, false, start, again, noneAt},
		{"start what another started", []Step{rowOf("s", StepStarted, byOther)}, false, start, lost, noneAt},
		{"start again what another started", []Step{rowOf("s", StepStarted, byOther)}, false, startAgain, put, StepStarted},
		{"start again what is done", []Step{rowOf("s", StepDone, byOther)}, false, startAgain, lost, noneAt},
		{"start backwards", []Step{rowOf("s", StepRegistered)}, true, start, lost, noneAt},
		{"finish", nil, false, finish, put, StepDone},
		{"finish what is registered", []Step{rowOf("s", StepRegistered, byOther)}, false, finish, put, StepDone},
		{"finish what another started", []Step{rowOf("s", StepStarted, byOther)}, false, finish, put, StepDone},
		{"finish twice", []Step{rowOf("s", StepDone)}, false, finish, again, noneAt},
		{"finish what another finished", []Step{rowOf("s", StepDone, byOther)}, false, finish, lost, noneAt},
		{"finish backwards", []Step{rowOf("s", StepStarted)}, true, finish, lost, noneAt},
		{"finish what is undone", []Step{rowOf("s", StepUndone)}, true, finish, lost, noneAt},
		{"undo", []Step{rowOf("s", StepDone)}, true, undo, put, StepUndoing},
		{"undo what is only registered", []Step{rowOf("s", StepRegistered, byOther)}, true, undo, put, StepUndoing},
		{"undo twice", []Step{rowOf("s", StepUndoing)}, true, undo, again, noneAt},
		{"undo what another began to undo", []Step{rowOf("s", StepUndoing, byOther)}, true, undo, put, StepUndoing},
		{"undo what another undid", []Step{rowOf("s", StepUndone, byOther)}, true, undo, lost, noneAt},
		{"undo forwards", []Step{rowOf("s", StepDone)}, false, undo, lost, noneAt},
		{"undo without a compensation", []Step{rowOf("s", StepDone, bare)}, true, undo, lost, noneAt},
		{"undo an unknown step", nil, true, undo, lost, noneAt},
		{"a failed compensation", []Step{rowOf("s", StepUndoing)}, true, fail1, put, StepUndoing},
		{"a third failed compensation", []Step{rowOf("s", StepUndoing, failed)}, true, fail3, put, StepUndoing},
		{"a failed compensation, repeated", []Step{rowOf("s", StepUndoing, failed)}, true, fail1, again, noneAt},
		{"a failed compensation out of order", []Step{rowOf("s", StepUndoing)}, true, fail3, lost, noneAt},
		{"a failed compensation that did not begin", []Step{rowOf("s", StepDone)}, true, fail1, lost, noneAt},
		{"a failed compensation of another", []Step{rowOf("s", StepUndoing, byOther)}, true, fail1, lost, noneAt},
		{"undone", []Step{rowOf("s", StepUndoing)}, true, undone, put, StepUndone},
		{"undone twice", []Step{rowOf("s", StepUndone)}, true, undone, again, noneAt},
		{"undone by another", []Step{rowOf("s", StepUndone, byOther)}, true, undone, lost, noneAt},
		{"undone without a beginning", []Step{rowOf("s", StepDone)}, true, undone, lost, noneAt},
		{"undone by another's beginning", []Step{rowOf("s", StepUndoing, byOther)}, true, undone, lost, noneAt},
		{"compensate", nil, false, StepWrite{Kind: CompensateRun, Reason: "why"}, put, RunCompensating},
		{"compensate twice", nil, true, StepWrite{Kind: CompensateRun, Reason: "why"}, again, noneAt},
		{"compensate a step", nil, false, StepWrite{Kind: CompensateRun, Name: "s"}, lost, noneAt},
		{"a step without a name", nil, false, StepWrite{Kind: FinishStep}, lost, noneAt},
		{"no kind", nil, false, StepWrite{Name: "s"}, lost, noneAt},
		{"an unknown kind", []Step{rowOf("s", StepDone)}, true, StepWrite{Kind: 99, Name: "s"}, lost, noneAt},
		{"effects that nothing carries", nil, false, StepWrite{Kind: StartStep, Name: "s", Effects: 1}, lost, noneAt},
	} {
		rows := slices.Clone(c.rows)
		if c.back {
			rows = append(rows, backwards()...)
		}
		before := slices.Clone(rows)
		got, _, o := DecideSteps(inState(InProgress), rows, hold(7, mine), []StepWrite{c.w}, t0.Add(time.Minute))
		for i := range rows {
			if rows[i].State != before[i].State {
				t.Errorf("%s: the rows passed in were written", c.name)
			}
		}
		switch c.want {
		case lost:
			if o != Lost || got != nil {
				t.Errorf("%s: %v, %v; wanted Lost and no rows", c.name, o, got)
			}
		case again:
			if o != Applied || got != nil {
				t.Errorf("%s: %v, %v; wanted Applied and no rows", c.name, o, got)
			}
		case put:
			if o != Applied || len(got) != 1 || got[0].State != c.state || got[0].Token != 7 || got[0].Nonce != mine ||
				!got[0].UpdatedAt.Equal(t0.Add(time.Minute)) {
				t.Errorf("%s: %v, %+v; wanted Applied and a row in state %v", c.name, o, got, c.state)
			}
		}
	}
}

// TestDecideStepsGuard: every write is guarded by the record.
func TestDecideStepsGuard(t *testing.T) {
	w := []StepWrite{{Kind: FinishStep, Name: "s"}}
	for _, c := range []struct {
		name string
		r    Record
		h    Hold
		want Outcome
	}{
		{"mine", inState(InProgress), hold(7, mine), Applied},
		{"an older token", inState(InProgress), hold(6, mine), Lost},
		{"a newer token", inState(InProgress), hold(8, mine), Lost},
		{"another nonce", inState(InProgress), hold(7, other), Lost},
		{"another generation", inState(InProgress, func(r *Record) { r.Generation = 2 }), hold(7, mine), Lost},
		{"another epoch", inState(InProgress, func(r *Record) { r.Epoch = 1 }), hold(7, mine), Lost},
		{"absent", Record{}, hold(7, mine), Lost},
		{"released", inState(Released), hold(7, mine), Lost},
		{"completed", inState(Completed), hold(7, mine), Lost},
		{"failed", inState(FailedState), hold(7, mine), Lost},
		{"uncertain", inState(Uncertain), hold(7, mine), Lost},
		{"an expired lease that nobody took", inState(InProgress), hold(7, mine), Applied},
	} {
		if _, _, o := DecideSteps(c.r, nil, c.h, w, t0.Add(time.Hour)); o != c.want {
			t.Errorf("%s: %v, wanted %v", c.name, o, c.want)
		}
	}
}

// TestDecideStepsTogether: writes of one call are all applied, or none; repeated together they do nothing.
func TestDecideStepsTogether(t *testing.T) {
	r, h := inState(InProgress), hold(7, mine)
	w := []StepWrite{
		{Kind: RegisterStep, Name: "a", Undo: true}, {Kind: StartStep, Name: "a"},
		{Kind: FinishStep, Name: "b", Result: []byte("1"), Effects: "queued"},
	}
	put, effects, o := DecideSteps(r, nil, h, w, t0)
	if o != Applied || len(put) != 2 || put[0].State != StepStarted || !put[0].Undo || put[0].Seq != 1 || put[1].Seq != 2 ||
		len(effects) != 1 || effects[0] != 2 {
		t.Fatalf("%v, %+v, %v", o, put, effects)
	}
	if again, effects, o := DecideSteps(r, put, h, w, t0); o != Applied || again != nil || effects != nil {
		t.Errorf("repeated: %v, %+v, %v", o, again, effects)
	}
	bad := append(slices.Clone(w), StepWrite{Kind: UndoStep, Name: "a"})
	if put, effects, o := DecideSteps(r, nil, h, bad, t0); o != Lost || put != nil || effects != nil {
		t.Errorf("with a write that is not allowed: %v, %+v, %v", o, put, effects)
	}
	// Rows that are not named may be left out, but for the last.
	if put, _, _ := DecideSteps(r, []Step{rowOf("z", StepDone, func(s *Step) { s.Seq = 40 })}, h, w[2:], t0); put[0].Seq != 41 {
		t.Errorf("behind row 40 came row %d", put[0].Seq)
	}
}

// TestDecideStepsRandomly: whatever is asked in whatever order, a run never goes forward once it compensates, no effect is
// carried twice, and a step that is done or undone stays so.
func TestDecideStepsRandomly(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	r, h := inState(InProgress), hold(7, mine)
	for range 3000 {
		var rows []Step
		carried := map[string]int{}
		for range 30 {
			if rnd.IntN(8) == 0 { // the next attempt
				r.Token++
				r.Nonce[5]++
				h = r.Hold()
			}
			w := StepWrite{
				Kind: StepWriteKind(1 + rnd.IntN(7)), Name: string('a' + rune(rnd.IntN(3))), Undo: rnd.IntN(2) == 0,
				Again: rnd.IntN(3) == 0, Failures: 1 + rnd.IntN(2),
			}
			switch w.Kind {
			case CompensateRun:
				if w.Name = ""; rnd.IntN(3) > 0 {
					continue
				}
			case FinishStep, FinishUndo:
				w.Effects = "e"
			}
			back := slices.ContainsFunc(rows, func(s Step) bool { return s.Name == "" })
			put, effects, o := DecideSteps(r, rows, h, []StepWrite{w}, t0)
			if len(effects) > 0 {
				carried[fmt.Sprint(w.Name, w.Kind)]++
			}
			for _, p := range put {
				if o != Applied || back && p.Name != "" && p.State <= StepDone {
					t.Fatalf("seed %d: %v wrote %+v, backwards %v", seed, w, p, back)
				}
				i := slices.IndexFunc(rows, func(s Step) bool { return s.Name == p.Name })
				if i < 0 {
					rows = append(rows, p)
					continue
				}
				if rows[i].State == StepUndone || p.State < rows[i].State && rows[i].State != StepStarted {
					t.Fatalf("seed %d: %v turned %+v into %+v", seed, w, rows[i], p)
				}
				rows[i] = p
			}
		}
		for what, n := range carried {
			if n > 1 {
				t.Fatalf("seed %d: the effects of %s were carried %d times", seed, what, n)
			}
		}
		r, h = inState(InProgress), hold(7, mine)
	}
}

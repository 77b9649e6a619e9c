package sim

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/semeltest"
)

// seedsOf is how many seeds a test simulates; SEMEL_SIM_SEEDS sets another number.
func seedsOf(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("SEMEL_SIM_SEEDS")); err == nil {
		return n
	}
	if testing.Short() {
		return 3000
	}
	return 30_000 / semeltest.Sampled(6)
}

func report(t *testing.T, r *Report) {
	t.Helper()
	for i := range r.Violations {
		v := &r.Violations[i]
		if i == 3 {
			t.Fatalf("and %d more", len(r.Violations)-i)
		}
		t.Errorf("%v\n%s", v, v.Trace)
	}
}

func TestNoInvariantIsViolatedOnAnySeed(t *testing.T) {
	r := Run(context.Background(), Options{Seeds: seedsOf(t)})
	t.Logf("%d seeds in %v: %+v", r.Seeds, r.Elapsed, r.Stats)
	report(t, &r)
	if r.Seeds == 0 || r.Crashes == 0 || r.Stalls == 0 || r.Takeovers == 0 || r.Late == 0 || r.Lost == 0 || r.Drains == 0 || r.DeadLetters == 0 ||
		r.Outages == 0 || r.Hits == 0 || r.Refused == 0 || r.Expired == 0 || r.Inserted == 0 {
		t.Errorf("the seeds exercise too little: %+v", r.Stats)
	}
}

// TestNoInvariantIsViolatedAtAnyCrashPoint plants faults at every operation of a part of the base schedules; of all in
// nightly runs, and in semel verify.
func TestNoInvariantIsViolatedAtAnyCrashPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("crash points take a few seconds")
	}
	r := Run(context.Background(), Options{CrashPoints: AllCrashPoints / semeltest.Sampled(10)})
	t.Logf("%d crash points, %d of sagas, %d of outboxes, in %v", r.CrashPoints, r.Sagas.CrashPoints, r.Outbox.CrashPoints, r.Elapsed)
	report(t, &r)
	if r.CrashPoints < 10_000 || r.Sagas.CrashPoints < 1000 || r.Outbox.CrashPoints < 300 {
		t.Error("that are too few")
	}
}

// TestEveryMutantIsFound plants each known way to get the protocol wrong (section 12): a checker that does not find it
// proves nothing about the engine.
func TestEveryMutantIsFound(t *testing.T) {
	r := Run(context.Background(), Options{Mutants: true})
	if len(r.Mutants) < 75 {
		t.Fatalf("%d mutants were tried", len(r.Mutants))
	}
	for _, m := range r.Mutants {
		t.Logf("%-50s %-4s after %6d seeds, %v", m.Name, m.Invariant, m.Tried, m.Elapsed)
		if !m.Found {
			t.Errorf("mutant %q was not found in %d seeds", m.Name, m.Tried)
		}
	}
}

// oneHistory: the same seed gives the same history byte for byte, whatever the simulator simulated before.
func oneHistory(t *testing.T, k *virtual.Kind, seeds uint64) {
	t.Helper()
	history := func(s virtual.Simulator, seed uint64) string {
		tr := &virtual.Trace{}
		s.Simulate(virtual.Random(seed), tr)
		return tr.Of(-1)
	}
	used, seen := k.New(), map[string]bool{}
	for seed := range seeds {
		a := history(used, seed)
		if b := history(k.New(), seed); a != b {
			t.Fatalf("seed %d has two histories", seed)
		}
		seen[a] = true
	}
	if len(seen) < int(seeds)*95/100 {
		t.Errorf("%d seeds have only %d histories", seeds, len(seen))
	}
}

func TestOneSeedIsOneHistory(t *testing.T) {
	engine, _, _ := new(Report).kinds()
	oneHistory(t, engine, 300)
}

func TestReplayPrintsTheHistory(t *testing.T) {
	var a, b bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := Replay(7, out); err != nil {
			t.Fatal(err)
		}
	}
	if a.String() != b.String() || !strings.Contains(a.String(), "no invariant is violated") || strings.Count(a.String(), "\n") < 20 {
		t.Fatalf("history of seed 7:\n%s", &a)
	}
}

// TestViolationIsExplained: what is found comes with its seed and the numbered history of its key, and the history is
// the one that violates.
func TestViolationIsExplained(t *testing.T) {
	k, _, _ := new(Report).kinds()
	w := k.New()
	var v *virtual.Violation
	for sc := (virtual.Schedule{Mistake: int(mutMarkFirst), At: -1}); v == nil; sc.Seed++ {
		_, v = w.Simulate(sc, nil)
	}
	k.Explain(w, v)
	if v.Invariant != "I18" || !strings.Contains(v.Trace, "*** I18") || strings.Contains(v.Trace, "not deterministic") ||
		!strings.Contains(v.String(), "mark before the effect") {
		t.Fatalf("%v\n%s", v, v.Trace)
	}
}

func TestRunObeysItsBudget(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := Run(ctx, Options{Seeds: 1_000_000, CrashPoints: AllCrashPoints}); r.Seeds > 100 {
		t.Fatalf("%d seeds after the end", r.Seeds)
	}
}

func benchmarkSeeds(b *testing.B, s virtual.Simulator) {
	b.ReportAllocs()
	for i := range b.N {
		if _, v := s.Simulate(virtual.Random(uint64(i)), nil); v != nil {
			b.Fatal(v)
		}
	}
}

func BenchmarkSeed(b *testing.B) { benchmarkSeeds(b, newSimulation()) }

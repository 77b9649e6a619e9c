package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/internal/sim/saga"
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
	return 30_000
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
		r.Outages == 0 || r.Hits == 0 || r.Refused == 0 || r.Expired == 0 {
		t.Errorf("the seeds exercise too little: %+v", r.Stats)
	}
}

// TestNoInvariantIsViolatedAtAnyCrashPoint plants faults at every operation of a part of the base schedules; of all in
// nightly runs, and in semel verify.
func TestNoInvariantIsViolatedAtAnyCrashPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("crash points take a few seconds")
	}
	bases := AllCrashPoints / 6
	if semeltest.Nightly() {
		bases = AllCrashPoints
	}
	r := Run(context.Background(), Options{CrashPoints: bases})
	t.Logf("%d crash points, %d of sagas, %d of outboxes, in %v", r.CrashPoints, r.Sagas.CrashPoints, r.Outbox.CrashPoints, r.Elapsed)
	report(t, &r)
	if r.CrashPoints < 10_000 || r.Sagas.CrashPoints < 1000 || r.Outbox.CrashPoints < 1000 {
		t.Error("that are too few")
	}
}

// TestEveryMutantIsFound plants each known way to get the protocol wrong (section 12): a checker that does not find it
// proves nothing about the engine.
func TestEveryMutantIsFound(t *testing.T) {
	r := Run(context.Background(), Options{Mutants: true})
	if len(r.Mutants) != int(mutants)-1+saga.Mutants+int(relayMutants)-1 {
		t.Fatalf("%d mutants were tried", len(r.Mutants))
	}
	for _, m := range r.Mutants {
		t.Logf("%-50s %-4s after %6d seeds, %v", m.Name, m.Invariant, m.Tried, m.Elapsed)
		if !m.Found {
			t.Errorf("mutant %q was not found in %d seeds", m.Name, m.Tried)
		}
	}
}

// TestOneSeedIsOneHistory: the same seed gives the same history byte for byte, whatever the world simulated before.
func TestOneSeedIsOneHistory(t *testing.T) {
	history := func(w *world, seed uint64) [32]byte {
		h := sha256.New()
		w.tr = &trace{hash: h}
		w.simulate(seed, noMutant, false, -1, 0)
		return [32]byte(h.Sum(nil))
	}
	used, seen := newWorld(), map[[32]byte]bool{}
	for seed := range uint64(300) {
		a := history(used, seed)
		if b := history(newWorld(), seed); a != b {
			t.Fatalf("seed %d has two histories", seed)
		}
		seen[a] = true
	}
	if len(seen) < 290 {
		t.Errorf("300 seeds have only %d histories", len(seen))
	}
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
	w := newWorld()
	var v *Violation
	for seed := uint64(0); v == nil; seed++ {
		v = w.simulate(seed, mutMarkFirst, false, -1, 0)
	}
	w.explain(v, mutMarkFirst, false, 0)
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

func BenchmarkSeed(b *testing.B) {
	w := newWorld()
	b.ReportAllocs()
	for i := range b.N {
		if v := w.simulate(uint64(i), noMutant, false, -1, 0); v != nil {
			b.Fatal(v)
		}
	}
}

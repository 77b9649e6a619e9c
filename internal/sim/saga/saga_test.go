package saga

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel/internal/virtual"
)

// seedsOf is how many seeds a test simulates; SEMEL_SIM_SEEDS sets another number.
func seedsOf(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("SEMEL_SIM_SEEDS")); err == nil {
		return n
	}
	if testing.Short() {
		return 3000
	}
	return 20_000
}

// explore explores sagas, and fails the test with what it found.
func explore(t *testing.T, what func(*virtual.Explorer, *virtual.Kind)) (st Stats) {
	t.Helper()
	x := &virtual.Explorer{Context: t.Context(), Workers: runtime.NumCPU(), Progress: func(s string) { t.Log(s) }}
	what(x, Kind(&st))
	for i := range x.Violations {
		t.Errorf("%v\n%s", &x.Violations[i], x.Violations[i].Trace)
	}
	return st
}

func TestFM63NoInvariantIsViolatedOnAnySeed(t *testing.T) {
	st := explore(t, func(x *virtual.Explorer, k *virtual.Kind) { x.Seeds(k, seedsOf(t)) })
	t.Logf("%+v", st)
	if st.Crashes == 0 || st.Stalls == 0 || st.Lost == 0 || st.Late == 0 || st.Completed == 0 || st.Compensated == 0 || st.Parked == 0 {
		t.Errorf("the seeds exercise too little: %+v", st)
	}
}

// TestFM63EveryCrashPoint plants one fault of each kind at every single call of base schedules.
func TestFM63EveryCrashPoint(t *testing.T) {
	points := 0
	st := explore(t, func(x *virtual.Explorer, k *virtual.Kind) { points = x.CrashPoints(k, max(seedsOf(t)/100, 20)) })
	if t.Logf("%d points: %+v", points, st); points < 1000 {
		t.Error("that are too few")
	}
}

func TestEveryMutantIsFound(t *testing.T) {
	explore(t, func(x *virtual.Explorer, k *virtual.Kind) {
		for _, m := range x.FindMistakes(k) {
			if !m.Found {
				t.Errorf("%q was not found in %d seeds", m.Name, m.Tried)
			}
			t.Logf("%-55s %-4s seed %d: %s", m.Name, m.Invariant, m.Seed, m.Detail)
		}
	})
}

// TestOneSeedIsOneHistory: the same seed gives the same history.
func TestOneSeedIsOneHistory(t *testing.T) {
	used, histories := &Simulation{}, map[string]bool{}
	for seed := range uint64(200) {
		var a, b strings.Builder
		if err := errors.Join(virtual.Replay(used, seed, &a), virtual.Replay(&Simulation{}, seed, &b)); err != nil || a.String() != b.String() {
			t.Fatalf("seed %d has two histories (%v)", seed, err)
		}
		histories[a.String()] = true
	}
	if len(histories) < 190 {
		t.Errorf("200 seeds have only %d histories", len(histories))
	}
}

package saga

import (
	"os"
	"strconv"
	"testing"
)

// seedsOf is how many seeds a test simulates; SEMEL_SIM_SEEDS sets another number.
func seedsOf(t *testing.T) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SEMEL_SIM_SEEDS"), 10, 64); err == nil {
		return n
	}
	if testing.Short() {
		return 3000
	}
	return 20_000
}

func TestFM63NoInvariantIsViolatedOnAnySeed(t *testing.T) {
	var st Stats
	bad := 0
	for seed := range seedsOf(t) {
		if v := Seed(seed, 0, &st); v != nil {
			t.Errorf("%v\n%s", v, v.Trace)
			if bad++; bad == 3 {
				t.FailNow()
			}
		}
	}
	t.Logf("%+v", st)
	if st.Crashes == 0 || st.Stalls == 0 || st.Lost == 0 || st.Late == 0 || st.Completed == 0 || st.Compensated == 0 || st.Parked == 0 {
		t.Errorf("the seeds exercise too little: %+v", st)
	}
}

// TestFM63EveryCrashPoint plants one fault of each kind at every single call of base schedules.
func TestFM63EveryCrashPoint(t *testing.T) {
	var st Stats
	bases := seedsOf(t) / 100
	points := 0
	for seed := range bases {
		calls, v := Point(seed, -1, 0, &st)
		for at := 0; at < calls && v == nil; at++ {
			for kind := 0; kind < Kinds && v == nil; kind++ {
				points++
				_, v = Point(seed, at, kind, &st)
			}
		}
		if v != nil {
			t.Fatalf("%v\n%s", v, v.Trace)
		}
	}
	t.Logf("%d points: %+v", points, st)
}

func TestEveryMutantIsFound(t *testing.T) {
	for m := 1; m <= Mutants; m++ {
		var v *Violation
		seed := uint64(0)
		for ; seed < 20_000; seed++ {
			if v = Seed(seed, m, &Stats{}); v != nil && Breaks(m, v.Invariant) {
				break
			}
		}
		if v == nil || !Breaks(m, v.Invariant) {
			t.Errorf("%q was not found in %d seeds", Name(m), seed)
			continue
		}
		t.Logf("%-55s %-4s seed %d: %s", Name(m), v.Invariant, seed, v.Detail)
	}
}

// TestOneSeedIsOneHistory: the same seed gives the same history.
func TestOneSeedIsOneHistory(t *testing.T) {
	histories := map[string]bool{}
	for seed := range uint64(200) {
		var last string
		for range 2 {
			w := newWorld(seed, 0, &Stats{})
			w.tracing = true
			w.run()
			if last != "" && w.trace.String() != last {
				t.Fatalf("seed %d has two histories", seed)
			}
			last = w.trace.String()
		}
		histories[last] = true
	}
	if len(histories) < 190 {
		t.Errorf("200 seeds have only %d histories", len(histories))
	}
}

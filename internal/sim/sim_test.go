package sim

import (
	"context"
	"os"
	"strconv"
	"testing"
)

func TestSeeds(t *testing.T) {
	r := Run(context.Background(), Options{Seeds: seedsOf(t)})
	t.Logf("%d seeds in %v: %+v", r.Seeds, r.Elapsed, r.Stats)
	for i := range r.Violations {
		v := &r.Violations[i]
		t.Errorf("%v\n%s", v, v.Trace)
		if i > 0 {
			break
		}
	}
}

func seedsOf(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("SEMEL_SIM_SEEDS")); err == nil {
		return n
	}
	if testing.Short() {
		return 2000
	}
	return 10_000
}

func TestMutantsAreFound(t *testing.T) {
	r := Run(context.Background(), Options{Mutants: true})
	for _, m := range r.Mutants {
		t.Logf("%-50s %-6s seed %-6d tried %-6d %v", m.Name, m.Invariant, m.Seed, m.Tried, m.Elapsed)
		if !m.Found {
			t.Errorf("mutant %q was not found in %d seeds", m.Name, m.Tried)
		}
	}
}

func TestCrashPoints(t *testing.T) {
	r := Run(context.Background(), Options{CrashPoints: true})
	t.Logf("%d crash points in %v", r.CrashPoints, r.Elapsed)
	for i := range r.Violations {
		v := &r.Violations[i]
		t.Errorf("%v\n%s", v, v.Trace)
		break
	}
}

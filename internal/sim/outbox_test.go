package sim

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/semel-dev/semel/internal/virtual"
)

// exploreOutboxes explores the outbox alone.
func exploreOutboxes(what func(*virtual.Explorer, *virtual.Kind)) *Report {
	r := &Report{}
	_, _, outbox := r.kinds()
	x := &virtual.Explorer{Context: context.Background(), First: 1, Workers: runtime.NumCPU(), Progress: func(string) { /* nobody asks */ }}
	what(x, outbox)
	r.Violations = x.Violations
	return r
}

func TestI16NoInvariantOfTheOutboxIsViolated(t *testing.T) {
	schedules := 0
	r := exploreOutboxes(func(x *virtual.Explorer, k *virtual.Kind) {
		schedules = x.Seeds(k, (seedsOf(t)+outboxShare-1)/outboxShare)
	})
	t.Logf("%+v", r.Outbox)
	report(t, r)
	if s := r.Outbox; schedules == 0 || s.Copies == 0 || s.Parked == 0 || s.Crashes == 0 || s.Stalls == 0 || s.Lost == 0 || s.Late == 0 {
		t.Errorf("the seeds exercise too little: %+v", s)
	}
}

// TestEveryMutantOfTheOutboxIsFound: each known way to relay wrong (protocol sections 8 and 12) is noticed.
func TestEveryMutantOfTheOutboxIsFound(t *testing.T) {
	var found []virtual.MistakeResult
	exploreOutboxes(func(x *virtual.Explorer, k *virtual.Kind) { found = x.FindMistakes(k) })
	if len(found) != int(relayMutants)-1 {
		t.Fatalf("%d mutants were tried", len(found))
	}
	for _, m := range found {
		t.Logf("%-50s %-4s after %6d seeds, %v: %s", m.Name, m.Invariant, m.Tried, m.Elapsed, m.Detail)
		if !m.Found {
			t.Errorf("mutant %q was not found in %d seeds", m.Name, m.Tried)
		}
	}
}

func TestOneSeedIsOneHistoryOfTheOutbox(t *testing.T) {
	_, _, outbox := new(Report).kinds()
	oneHistory(t, outbox, 100)
}

func TestReplayOutbox(t *testing.T) {
	var out bytes.Buffer
	if err := ReplayOutbox(7, &out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "no invariant is violated") || !strings.Contains(s, "commits") || !strings.Contains(s, "sends") {
		t.Errorf("history of seed 7:\n%s", s)
	}
}

func BenchmarkRelaySeed(b *testing.B) { benchmarkSeeds(b, &relaySimulation{}) }

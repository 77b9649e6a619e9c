package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"runtime"
	"strings"
	"testing"
)

// relayReport runs the outbox alone.
func relayReport(o Options, run func(p *pool)) *Report {
	o.Workers, o.Progress = runtime.NumCPU(), func(string) { /* nobody asks */ }
	p := &pool{ctx: context.Background(), o: o}
	run(p)
	return &p.report
}

func TestI16NoInvariantOfTheOutboxIsViolated(t *testing.T) {
	r := relayReport(Options{Seeds: seedsOf(t), First: 1}, (*pool).relaySeeds)
	t.Logf("%+v", r.Outbox)
	report(t, r)
	if s := r.Outbox; s.Schedules == 0 || s.Copies == 0 || s.Parked == 0 || s.Crashes == 0 || s.Stalls == 0 || s.Lost == 0 || s.Late == 0 {
		t.Errorf("the seeds exercise too little: %+v", s)
	}
}

// TestEveryMutantOfTheOutboxIsFound: each known way to relay wrong (protocol sections 8 and 12) is noticed.
func TestEveryMutantOfTheOutboxIsFound(t *testing.T) {
	r := relayReport(Options{First: 1}, (*pool).findRelayMutants)
	if len(r.Mutants) != int(relayMutants)-1 {
		t.Fatalf("%d mutants were tried", len(r.Mutants))
	}
	for _, m := range r.Mutants {
		t.Logf("%-50s %-4s after %6d seeds, %v: %s", m.Name, m.Invariant, m.Tried, m.Elapsed, m.Detail)
		if !m.Found {
			t.Errorf("mutant %q was not found in %d seeds", m.Name, m.Tried)
		}
	}
}

func TestOneSeedIsOneHistoryOfTheOutbox(t *testing.T) {
	history := func(w *relayWorld, seed uint64) [32]byte {
		h := sha256.New()
		w.tr = &trace{hash: h}
		w.simulate(seed, noRelayMutant, false, -1, relayFine)
		return [32]byte(h.Sum(nil))
	}
	used, seen := newRelayWorld(), map[[32]byte]bool{}
	for seed := range uint64(100) {
		a := history(used, seed)
		if b := history(newRelayWorld(), seed); a != b {
			t.Fatalf("seed %d has two histories", seed)
		}
		seen[a] = true
	}
	if len(seen) < 100 {
		t.Errorf("100 seeds have only %d histories", len(seen))
	}
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

func BenchmarkRelaySeed(b *testing.B) {
	w := newRelayWorld()
	b.ReportAllocs()
	for i := range b.N {
		if v := w.simulate(uint64(i), noRelayMutant, false, -1, relayFine); v != nil {
			b.Fatal(v)
		}
	}
}

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// testGate is a gate whose kills are counted instead of done.
func testGate(t *testing.T, dir string, worker int, died *int, strikes ...plan.Strike) *gate {
	t.Helper()
	log, err := eventlog.Open(filepath.Join(dir, "events-test.jsonl"), worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	g := newGate(strikes, worker, dir, log)
	g.die = func() { *died++ }
	return g
}

func TestGateKillsAtTheNthPassage(t *testing.T) {
	died := 0
	g := testGate(t, t.TempDir(), 2, &died, plan.Strike{ID: 1, Step: plan.AfterClaim, Worker: 2, Nth: 3})
	for i, want := range []int{0, 0, 1, 1} {
		g.pass(plan.AfterReceive, "k", "m") // other steps do not count
		g.pass(plan.AfterClaim, "k", "m")
		if died != want {
			t.Fatalf("after passage %d: died %d times, want %d", i+1, died, want)
		}
	}
	other := 0
	g = testGate(t, t.TempDir(), 1, &other, plan.Strike{ID: 1, Step: plan.AfterClaim, Worker: 2, Nth: 1})
	g.pass(plan.AfterClaim, "k", "m")
	if other != 0 {
		t.Error("a kill of worker 2 hit worker 1")
	}
}

func TestGateKillsOncePerRun(t *testing.T) {
	dir := t.TempDir()
	kill := plan.Strike{ID: 7, Step: plan.AfterEffect, Key: "order-0001"}
	first, second := 0, 0
	a, b := testGate(t, dir, 1, &first, kill), testGate(t, dir, 2, &second, kill)
	a.pass(plan.AfterEffect, "order-0002", "m-2")
	if first != 0 {
		t.Fatal("another key was hit")
	}
	a.pass(plan.AfterEffect, "order-0001", "m-1")
	b.pass(plan.AfterEffect, "order-0001", "m-1") // its redelivery, in another process
	if first != 1 || second != 0 {
		t.Errorf("died %d and %d times, want once in the first process", first, second)
	}
	entries, err := eventlog.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Kind != eventlog.Struck || entries[0].Key != "order-0001" || entries[0].Step != plan.AfterEffect {
		t.Errorf("last words: %+v", entries)
	}
}

func TestJournalSkipsATornLine(t *testing.T) {
	dir := t.TempDir()
	whole := `{"at":5,"kind":"started","key":"a"}` + "\n" + `{"at":3,"kind":"received","key":"a"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "events-1-1.jsonl"), []byte(whole+`{"at":9,"ki`), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := eventlog.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].Kind != "received" || entries[1].Kind != "started" {
		t.Errorf("got %+v", entries)
	}
}

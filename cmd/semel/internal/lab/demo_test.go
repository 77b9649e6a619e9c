package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/process"
)

// TestFM03_DemoBreaksAndHolds is the demo end to end with real processes: crash after the effect (FM 3), after the
// completion (FM 4), after the claim (FM 5), the producer's second copy (FM 28), buffered deliveries that overrun
// (FM 27).
func TestFM03_DemoBreaksAndHolds(t *testing.T) {
	report := filepath.Join(t.TempDir(), "demo.html")
	o := DemoOptions{
		Orders: 60, Workers: 2, Kills: 3, Visibility: time.Second, Options: Options{Seed: 11, Report: report},
	}
	v, err := demo(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Runs) != 2 || !v.OK() {
		t.Fatalf("verdict %+v", v)
	}
	off, on := v.Runs[0], v.Runs[1]
	t.Logf("off %+v", off)
	t.Logf("on  %+v", on)
	if off.Guard != plan.GuardOff || off.Sent != 60 || off.Effects != 60+off.Duplicated || off.Lost != 0 ||
		off.DamageMinor != int64(off.Duplicated)*100_000 || off.Kills != 3 {
		t.Errorf("guard off: %+v", off)
	}
	if on.Guard != plan.GuardOn || on.Sent != 60 || on.Effects != 60 || on.Duplicated != 0 || on.Lost != 0 || on.DamageMinor != 0 {
		t.Errorf("guard on: %+v", on)
	}
	// A worker that is killed between acknowledging a retry and logging it leaves it out of the count.
	if on.Replayed == 0 || on.Dead != 0 || on.Parked != 0 {
		t.Errorf("guard on: %d replayed, %d dead, %d parked", on.Replayed, on.Dead, on.Parked)
	}
	if on.Kills < 4 {
		t.Errorf("guard on: only %d kills", on.Kills)
	}
	doubled := map[string]verdict.Double{}
	for _, d := range v.Timeline.Runs[0].Doubles {
		doubled[d.Key] = d
	}
	for _, k := range v.Timeline.Scenario.Plan(11, plan.GuardOff).Strikes {
		if k.Key != "" && doubled[k.Key].Cause != verdict.CauseKilled {
			t.Errorf("%s was to break by a kill after the effect: %+v", k.Key, doubled[k.Key])
		}
	}
	for i, tale := range v.Timeline.Runs {
		f, sum := tale.Flow, 0
		for _, n := range f {
			sum += n
		}
		if sum != v.Runs[i].Delivered {
			t.Errorf("run %d: the parts sum up to %d of %d deliveries", i, sum, v.Runs[i].Delivered)
		}
		if f[verdict.Charged]+f[verdict.Doubled] != v.Runs[i].Effects {
			t.Errorf("run %d: the picture shows %d charges, the ledger has %d", i, f[verdict.Charged]+f[verdict.Doubled], v.Runs[i].Effects)
		}
	}
	if info, err := os.Stat(report); err != nil || info.Size() < 20_000 {
		t.Errorf("report: %v, %v", info, err)
	}
	if v.Kept != "" {
		t.Errorf("kept %s", v.Kept)
	}
}

func TestDemoKeeps(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	v, err := demo(t, DemoOptions{Orders: 4, Workers: 1, Visibility: 10 * time.Second, Options: Options{Seed: 3, Keep: true}})
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || v.Runs[0].Kills != 0 || v.Runs[0].Duplicated != 1 {
		t.Errorf("a retry alone must double an order: %+v", v.Runs)
	}
	for _, g := range []string{"off", "on"} {
		if _, err := os.Stat(filepath.Join(v.Kept, g, "demo.db")); err != nil {
			t.Error(err)
		}
	}
	r, err := place.Open(t.Context(), place.File(filepath.Join(v.Kept, "on", "demo.db")), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	rows, err := r.Effects(t.Context())
	if err != nil || len(rows) != 4 {
		t.Errorf("%d rows in the kept ledger, %v", len(rows), err)
	}
}

func TestDemoReportsAWorkerThatCannotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := DemoOptions{Orders: 2, Workers: 1, Visibility: time.Second, Options: Options{Command: []string{"/nonexistent/semel"}}}
	_, err := RunDemo(t.Context(), o, nil)
	if err == nil || !strings.Contains(err.Error(), "start worker 1") {
		t.Errorf("got %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A program that is no worker: it must be an error not an endless restart.
	o.Command = []string{exe, "-test.run=^$"}
	_, err = RunDemo(t.Context(), o, nil)
	if err == nil || !strings.Contains(err.Error(), "worker 1 ended although it was not asked to") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "semel-demo-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoStopsWhenCancelled(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pids []int
	o := DefaultDemo()
	o.Seed, o.Command, o.Env = 5, []string{exe}, []string{workerEnv + "=1"}
	_, err = RunDemo(ctx, o, func(string) {
		pids = spawned(t, tmp)
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if len(pids) < 3 {
		t.Fatalf("only %d workers were started", len(pids))
	}
	for _, pid := range pids {
		if !process.Gone(pid) {
			t.Errorf("worker process %d is left behind", pid)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "semel-demo-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// spawned reads the process ids of all workers that were started below a temporary folder.
func spawned(t *testing.T, tmp string) (pids []int) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(tmp, "semel-demo-*", "*"))
	for _, dir := range dirs {
		entries, err := eventlog.Read(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if e.Kind == eventlog.Spawn {
				pids = append(pids, e.PID)
			}
		}
	}
	return pids
}

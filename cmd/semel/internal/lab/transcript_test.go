package lab

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
)

// checkTranscript runs a scenario with real processes and compares the log of one side. On a machine that stands still for
// half a second the deliveries come in another order, so it has three tries.
func checkTranscript(t *testing.T, name string, g plan.Guard, want []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := scenarios.Find(name)
	var got []string
	for range 3 {
		v, err := Run(t.Context(), s, Options{
			Seed: 1, Guards: []plan.Guard{g}, Command: []string{exe}, Env: []string{workerEnv + "=1"},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got = v.Runs[0].Transcript; slices.Equal(got, want) {
			return
		}
	}
	t.Errorf("%s, guard %s:\n%s", name, g, strings.Join(got, "\n"))
}

// TestS0_16_TranscriptOfARealRun: the four lines of the seed, without a heartbeat.
func TestS0_16_TranscriptOfARealRun(t *testing.T) {
	checkTranscript(t, "visibility", plan.GuardOff, []string{
		"Start msg-1 sleep 8", "Start msg-1 sleep 8", "✅ Completed msg-1", "🔁 Duplicate detect. Skip: msg-1",
	})
}

// TestS0_17_TranscriptOfARealRun: exactly two lines with a heartbeat, on both sides.
func TestS0_17_TranscriptOfARealRun(t *testing.T) {
	for _, g := range []plan.Guard{plan.GuardOff, plan.GuardOn} {
		checkTranscript(t, "heartbeat", g, []string{"Start msg-2 sleep 8", "✅ Completed msg-2"})
	}
}

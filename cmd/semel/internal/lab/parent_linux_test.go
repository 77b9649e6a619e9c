package lab

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// parentEnv makes the test binary run a whole demo, to be killed in the middle.
const parentEnv = "SEMEL_LAB_TEST_PARENT"

// TestFM67_WorkersDieWithTheirParent: nothing that a killed parent started may go on with its effects.
func TestFM67_WorkersDieWithTheirParent(t *testing.T) {
	tmp := t.TempDir()
	parent := process.StartTest(t, process.Self(parentEnv+"=1", "TMPDIR="+tmp))
	var pids []int
	for deadline := time.Now().Add(time.Minute); len(pids) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d workers were started", len(pids))
		}
		pids = spawned(t, tmp)
	}
	time.Sleep(100 * time.Millisecond) // at work, not only started
	parent.Kill()
	pids = spawned(t, tmp)
	for _, pid := range pids {
		for deadline := time.Now().Add(time.Minute); !process.Gone(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("worker process %d outlived its parent", pid)
			}
		}
	}
}

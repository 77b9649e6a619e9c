package lab

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// parentEnv makes the test binary run a whole demo, to be killed in the middle.
const parentEnv = "SEMEL_LAB_TEST_PARENT"

// TestFM67_WorkersDieWithTheirParent: nothing that a killed parent started may go on with its effects.
func TestFM67_WorkersDieWithTheirParent(t *testing.T) {
	tmp := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe)
	parent.Env = append(os.Environ(), parentEnv+"=1", "TMPDIR="+tmp)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for deadline := time.Now().Add(time.Minute); len(pids) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = parent.Process.Kill()
			t.Fatalf("only %d workers were started", len(pids))
		}
		pids = spawned(t, tmp)
	}
	time.Sleep(100 * time.Millisecond) // at work, not only started
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	pids = spawned(t, tmp)
	for _, pid := range pids {
		for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("worker process %d outlived its parent", pid)
			}
		}
	}
}

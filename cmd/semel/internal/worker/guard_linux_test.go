package worker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// TestFM67_HandlerDiesWithItsWorker kills a worker with SIGKILL while its handler runs: with the parent-death signal
// alone the handler process dies, with the guard everything that it started as well.
func TestFM67_HandlerDiesWithItsWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, mode := range []string{"alone", "guarded", "pipe"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			pids := filepath.Join(dir, "pids")
			// The shell (first line) starts a grandchild in a session of its own (second line) and waits: the signal to the
			// process group does not reach that one.
			script := fmt.Sprintf(`echo $$ > %[1]s; setsid sh -c 'echo $$ >> %[1]s; echo ready >> %[1]s; exec sleep 300' & wait; echo late > %[2]s`,
				pids, filepath.Join(dir, "late"))
			victim := process.StartTest(t, exec.Command(os.Args[0], "victim", mode, script))
			running := awaitPids(t, pids)
			victim.Kill()
			want := running[:1]
			if mode != "alone" {
				want = running
			} else {
				defer func() { _ = process.SignalGroup(running[1], syscall.SIGKILL) }()
			}
			for _, pid := range want {
				awaitDeath(t, pid)
			}
		})
	}
}

func awaitPids(t *testing.T, path string) (pids []int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, _ := os.ReadFile(path)
		lines := strings.Fields(string(b))
		if len(lines) == 3 {
			for _, l := range lines[:2] {
				pid, err := strconv.Atoi(l)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			return pids
		}
		if time.Now().After(end) {
			t.Fatalf("the handler did not start: %q", b)
		}
	}
}

// awaitDeath waits until a process is gone, or a zombie that nobody has collected yet.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !process.Gone(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d outlives its worker", pid)
		}
	}
}

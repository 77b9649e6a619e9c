package worker

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// processAttr puts a handler into a process group of its own and has the kernel kill it when its worker dies.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// processesOf finds the processes that carry the name of a run in their environment; zombies have none.
func processesOf(runs map[string]int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue // gone, or somebody else's
		}
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if run, ok := bytes.CutPrefix(kv, []byte(runVariable+"=")); ok {
				if _, ours := runs[string(run)]; ours {
					pids = append(pids, pid)
				}
				break
			}
		}
	}
	return pids
}

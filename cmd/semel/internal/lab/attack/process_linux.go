package attack

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup keeps signals of the terminal from a worker, and has the kernel kill it when the attack crashes.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// leftover is a process that a handler left behind.
type leftover struct {
	pid  int
	name string
}

// leftovers finds the processes that carry the mark of this attack and are no workers.
func leftovers(mark string, workers map[int]bool) (out []leftover) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte(markVariable + "=" + mark)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || workers[pid] {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue // gone, or of another user
		}
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(kv, want) {
				out = append(out, leftover{pid: pid, name: commandOf(e.Name())})
				break
			}
		}
	}
	return out
}

func commandOf(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
}

// dead reports whether a process has ended; one that only waits to be collected has.
func dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return len(after) > 1 && (after[1] == 'Z' || after[1] == 'X')
}

package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// every lists the processes of this machine, none where there is no /proc. Glob would list the folder of each process, too.
func every() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// WithVariable finds the other processes with a matching variable, "NAME=VALUE", in their environment. Zombies have none,
// and neither have processes of other users. Where there is no /proc, it finds nothing.
func WithVariable(match func(variable string) bool) (pids []int) {
	for _, pid := range every() {
		if pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for variable := range bytes.SplitSeq(env, []byte{0}) {
			if match(string(variable)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

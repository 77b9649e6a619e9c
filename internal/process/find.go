package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// WithVariable finds the other processes with a matching variable, "NAME=VALUE", in their environment. Zombies have none,
// and neither have processes of other users. Where there is no /proc, it finds nothing.
func WithVariable(match func(variable string) bool) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(path)
		for variable := range bytes.SplitSeq(env, []byte{0}) {
			if match(string(variable)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

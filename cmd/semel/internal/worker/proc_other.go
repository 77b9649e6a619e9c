//go:build !unix

package worker

import (
	"os"
	"syscall"
)

// processAttr: there are no process groups here. What a handler starts is the handler's to end.
func processAttr() *syscall.SysProcAttr { return nil }

func ownSession() *syscall.SysProcAttr { return nil }

// signalGroup ends the process itself; there is no gentler signal.
func signalGroup(pid int, _ syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// processesOf: processes cannot be found by their environment here; their groups stand in.
func processesOf(map[string]int) []int { return nil }

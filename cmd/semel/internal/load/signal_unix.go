//go:build unix

package load

import (
	"os"
	"syscall"
)

// terminate asks a worker to drain.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// ended tells an end that was asked for from a failure: a worker that drains exits with 0.
func ended(*os.ProcessState) bool { return false }

//go:build unix

package child

import (
	"os"
	"syscall"
)

// Terminate asks a process to end, as a deployment does: one that drains ends what it has in flight.
func Terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

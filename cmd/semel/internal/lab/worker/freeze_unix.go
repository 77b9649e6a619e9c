//go:build unix

package worker

import (
	"os"
	"os/signal"
	"syscall"
)

// freezer returns a function that waits until the process was frozen and goes on. The parent stops it, once the
// process has said that it is there: from inside it could stop while another of its goroutines is in the middle of a write
// that keeps everybody else from writing. SIGCONT is listened for from now on, so that none is missed.
func freezer() func() {
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	return func() { <-thawed }
}

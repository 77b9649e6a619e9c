//go:build unix

package worker

import (
	"os"
	"os/signal"
	"syscall"
)

// freezeSelf stops the whole process until somebody sends SIGCONT. The signal stops one thread after the other, so that the
// caller may still run when it has been sent: it waits for the end of the stop, and does nothing in between.
func freezeSelf() {
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	defer signal.Stop(thawed)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-thawed
	}
}

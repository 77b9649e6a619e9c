//go:build !linux

package attack

import "errors"

// leftover is a process that a handler left behind.
type leftover struct {
	pid  int
	name string
}

// leftovers: processes cannot be found by their environment here.
func leftovers(string, map[int]bool) []leftover { return nil }

// dead cannot tell a process that ended from one that waits to be collected here.
func dead(pid int) bool { return errors.Is(alive(pid), errGone) }

var errGone = errors.New("no such process")

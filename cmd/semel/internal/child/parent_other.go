//go:build !linux

package child

import "syscall"

// DieWithParent has no help from the system here: a child outlives its parent, unless it notices the end of its standard
// input.
func DieWithParent() *syscall.SysProcAttr { return nil }

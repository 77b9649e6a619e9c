//go:build !linux

package load

import "syscall"

// dieWithParent has no help from the system here: workers whose parent was killed go on until they are ended.
func dieWithParent() *syscall.SysProcAttr { return nil }

//go:build unix && !linux

package process

import "syscall"

// dieWithParent: there is no parent-death signal here.
func dieWithParent(*syscall.SysProcAttr) {}

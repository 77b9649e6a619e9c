//go:build !unix

package play

import (
	"os"
	"syscall"
)

// dieWithParent has no help from the system here: a child notices the end of its standard input.
func dieWithParent() *syscall.SysProcAttr { return nil }

// wasKilled: TerminateProcess, which Process.Kill uses, leaves exit code 1 like any failure.
func wasKilled(s *os.ProcessState) bool { return s.ExitCode() == 1 }

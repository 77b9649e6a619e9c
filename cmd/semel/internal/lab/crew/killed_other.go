//go:build !unix

package crew

import "os"

// wasKilled: TerminateProcess, which Process.Kill uses, leaves exit code 1 like any failure.
func wasKilled(s *os.ProcessState) bool { return s.ExitCode() == 1 }

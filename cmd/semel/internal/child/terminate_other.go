//go:build !unix

package child

import "os"

// Terminate ends a process: there is no milder way here.
func Terminate(p *os.Process) error { return p.Kill() }

//go:build !unix

package play

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("this system has no signal to stop a process with")

// terminate ends a process: there is no milder way here.
func terminate(p *os.Process) error { return p.Kill() }

func stop(int) error { return errNoSignals }

func goOn(int) error { return errNoSignals }

//go:build !unix

package crew

import "errors"

var errNoSignals = errors.New("this system has no signal to stop a process with")

func stop(int) error { return errNoSignals }

func goOn(int) error { return errNoSignals }

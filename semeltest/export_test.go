package semeltest

import "github.com/semel-dev/semel/driver"

// Leaky makes the wrappers of the pair suite pass interfaces that they must not pass.
func Leaky(s PairSetup, passes ...driver.Interface) PairSetup {
	s.leaks = passes
	return s
}

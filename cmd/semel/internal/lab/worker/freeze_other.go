//go:build !unix

package worker

// freezer returns a function that does nothing: this system cannot stop a process.
func freezer() func() { return func() {} }

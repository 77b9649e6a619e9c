//go:build !unix

package worker

// freezeSelf does nothing: this system cannot stop a process.
func freezeSelf() {}

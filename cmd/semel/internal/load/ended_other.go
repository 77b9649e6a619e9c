//go:build !unix

package load

import "os"

// ended tells an end that was asked for from a failure: here all of them look like failures.
func ended(*os.ProcessState) bool { return true }

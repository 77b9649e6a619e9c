package main

import (
	"os/exec"
	"testing"

	"github.com/semel-dev/semel/semeltest/server"
)

// The package for Python has its own tests, on the standard library.
func TestPythonPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many interpreters")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		server.LeaveOut(t, "python3", "it is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = "../../sdk/python"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

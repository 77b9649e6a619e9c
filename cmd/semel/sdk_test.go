package main

import (
	"os/exec"
	"testing"

	"github.com/semel-dev/semel/semeltest/server"
)

// The packages for other languages have tests of their own, which need nothing but the language.
func TestPackagesOfOtherLanguages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many interpreters")
	}
	for dir, argv := range map[string][]string{
		"python": {"python3", "-B", "-m", "unittest", "discover", "-s", "tests"},
		"node":   {"node", "--test"},
	} {
		t.Run(dir, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				server.LeaveOut(t, argv[0], "it is not installed")
			}
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Dir = "../../sdk/" + dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

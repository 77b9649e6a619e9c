package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/semel-dev/semel/semeltest/server"
)

// TestPackagesOfOtherLanguages runs the packages' own tests. They need the language, and this binary as SEMEL_BINARY.
func TestPackagesOfOtherLanguages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many interpreters")
	}
	binary := semelBinary(t)
	for dir, argv := range map[string][]string{
		"python": {"python3", "-B", "-m", "unittest", "discover", "-s", "tests"},
		"node":   {"node", "--test"},
	} {
		t.Run(dir, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				server.LeaveOut(t, argv[0], "it is not installed")
			}
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = "../../sdk/"+dir, append(os.Environ(), "SEMEL_BINARY="+binary)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// semelBinary is the path of the binary: testscript.Main makes this test binary the program when it is called semel.
func semelBinary(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "semel")
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	return path
}

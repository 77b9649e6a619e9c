// Package binary builds semel for tests that run it.
package binary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Build builds semel in bin/ of the repository and returns its path. It is for the tests of a folder below tests/: the binary is
// part of the workspace, they are not. Tests of several packages use one file: a build that finds it up to date does not link.
func Build() (path string, err error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	path = filepath.Join(root, "bin", "tests", "semel")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as go build does
		return "", fmt.Errorf("make the folder of the binary: %w", err)
	}
	lock, err := os.Create(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("lock the binary: %w", err)
	}
	defer func() { _ = lock.Close() }() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the binary: %w", err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
	build.Dir, build.Env = filepath.Join(root, "cmd", "semel"), append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build semel: %w\n%s", err, out)
	}
	return path, nil
}

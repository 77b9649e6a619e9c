// Package binary builds semel for tests that run it.
package binary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds semel in a folder and returns its path. It is for the tests of a folder below tests/: the binary is part of
// the workspace, they are not.
func Build(dir string) (path string, err error) {
	path = filepath.Join(dir, "semel")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir, build.Env = filepath.Join("..", "..", "cmd", "semel"), append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build semel: %w\n%s", err, out)
	}
	return path, nil
}

//go:build !unix

package sqlite

import (
	"os"
	"os/exec"
	"testing"
)

func asNobody(*exec.Cmd) {}

// freeze and thaw: there are no such signals here; processes are killed only.
func freeze(*testing.T, *os.Process) {}

func thaw(*testing.T, *os.Process) {}

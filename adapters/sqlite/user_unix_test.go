//go:build unix

package sqlite

import (
	"os/exec"
	"syscall"
)

// asNobody makes the process run as a user without rights.
func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

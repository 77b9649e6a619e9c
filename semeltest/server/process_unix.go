//go:build unix

package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killTree ends a process and its children with SIGKILL, and waits until the children are gone. PostgreSQL's children
// are sessions of their own, so the process group does not reach them.
//
//  1. The parent is stopped: from now on it forks nobody.
//  2. Its children are listed.
//  3. All are killed. A child that forks in between is an autovacuum launcher's at most, whose work the parent does.
func killTree(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	children, err := childrenOf(pid)
	for _, p := range append([]int{pid}, children...) {
		if e := syscall.Kill(p, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", p, e))
		}
	}
	for deadline := time.Now().Add(10 * time.Second); err == nil && len(children) > 0; {
		if gone(children[0]) {
			children = children[1:]
		} else if time.Now().After(deadline) {
			err = fmt.Errorf("processes %v survive SIGKILL", children)
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// childrenOf lists the children of a process: from /proc, or by ps where there is no /proc.
func childrenOf(pid int) ([]int, error) {
	var found []int
	if stats, _ := filepath.Glob("/proc/[0-9]*/stat"); len(stats) > 0 {
		for _, path := range stats {
			child, parent, _ := readStat(path)
			if parent == pid {
				found = append(found, child)
			}
		}
		return found, nil
	}
	out, err := output(exec.Command("ps", "-axo", "pid=,ppid="))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for line := range strings.Lines(out) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found, nil
}

// readStat reads /proc/PID/stat: "PID (NAME) STATE PARENT ...", where NAME may contain anything. A process that is gone
// has no parent and the state 'X'.
func readStat(path string) (pid, parent int, state byte) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, 'X'
	}
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, 0, 'X'
	}
	pid, _ = strconv.Atoi(string(bytes.TrimSpace(b[:bytes.IndexByte(b, '(')])))
	fields := bytes.Fields(b[end+1:])
	if len(fields) < 2 {
		return 0, 0, 'X'
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return pid, parent, fields[0][0]
}

// gone reports whether a process has ended. A zombie process has.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	_, err := os.Stat("/proc/self/stat")
	if err != nil {
		return false
	}
	_, _, state := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return state == 'Z' || state == 'X'
}

// detach gives a command a process group of its own, so that an interrupt from the terminal is not for it, and another
// user when there is one.
func detach(cmd *exec.Cmd, as *owner) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
}

// unprivileged is the user for servers that refuse root: postgres, or nobody. It is nil when we are not root.
func unprivileged() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, fmt.Errorf("read the user id of %s: %w", name, err)
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, fmt.Errorf("read the group id of %s: %w", name, err)
		}
		return &owner{uid: uid, gid: gid}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: " +
		"run the tests as another user")
}

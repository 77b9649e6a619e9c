//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Gone reports whether a process has ended. A zombie, which only waits to be collected, has, where there is /proc.
func Gone(pid int) bool {
	if errors.Is(send(pid, 0), os.ErrProcessDone) {
		return true
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return false
	}
	_, state := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return state == 'Z' || state == 'X'
}

// Freeze stops the process where it is: no timer runs, no connection breaks. Where there is /proc, it returns when all threads
// have stopped: a thread can continue for a moment after the signal, and take a lock that nobody can release.
func (p *Process) Freeze() error {
	if err := p.Signal(sigstop); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); p.Running() && threadRuns(p.Pid()) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

func threadRuns(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(threads, func(path string) bool {
		_, state := readStat(path)
		return !strings.ContainsRune("TtXZ", rune(state))
	})
}

// KillTree kills a process and its children, whatever their groups and sessions, and waits until they are gone. It is for
// servers whose children are sessions of their own, as PostgreSQL's are.
//
//  1. The process is stopped: from now on it forks nobody.
//  2. Its children are listed.
//  3. All are killed. A child that forks in between is an autovacuum launcher's at most, whose work the parent does.
func (p *Process) KillTree() error {
	if !p.Running() {
		return nil
	}
	if err := send(p.Pid(), sigstop); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	children, err := Children(p.Pid())
	for _, pid := range append([]int{p.Pid()}, children...) {
		if e := send(pid, syscall.SIGKILL); !errors.Is(e, os.ErrProcessDone) {
			err = errors.Join(err, e)
		}
	}
	<-p.done
	for deadline := time.Now().Add(10 * time.Second); err == nil && len(children) > 0; {
		if Gone(children[0]) {
			children = children[1:]
		} else if time.Now().After(deadline) {
			err = fmt.Errorf("processes %v survive SIGKILL", children)
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// Children lists the processes whose parent is pid: from /proc, or by ps where there is no /proc.
func Children(pid int) ([]int, error) {
	var found []int
	if all := every(); len(all) > 0 {
		for _, p := range all {
			if parent, _ := readStat(fmt.Sprintf("/proc/%d/stat", p)); parent == pid {
				found = append(found, p)
			}
		}
		return found, nil
	}
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found, nil
}

// readStat reads /proc/PID/stat: "PID (NAME) STATE PARENT ...", where NAME may contain anything. A process that is gone
// has no parent and the state 'X'.
func readStat(path string) (parent int, state byte) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 'X'
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, 'X'
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0]
}

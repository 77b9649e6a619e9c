package server

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// guardScript waits until its input ends, which it does when the process that holds the other end dies, and cleans up.
// $1 is the server's directory, in which the file pid names the server while it runs.
const guardScript = `cat >/dev/null
if pid=$(cat "$1/pid" 2>/dev/null); then
	kill -QUIT "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done
	kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"`

// guard is a process that outlives this one: it ends the server and removes its directory when this process has died.
type guard struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
}

func newGuard(dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "semel-server-guard", dir)
	detach(cmd, nil)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{dir: dir, cmd: cmd, stdin: stdin}, nil
}

// note tells the guard which process to end.
func (g *guard) note(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "pid"), []byte(strconv.Itoa(pid)), 0o644)
}

// forget removes the process from the guard: its number may soon belong to another process.
func (g *guard) forget() { os.Remove(filepath.Join(g.dir, "pid")) }

// close has the directory removed and waits for it.
func (g *guard) close() error {
	if g.cmd == nil {
		return nil
	}
	_ = g.stdin.Close()
	err := g.cmd.Wait()
	g.cmd = nil
	if err != nil {
		return fmt.Errorf("remove %s: %w", g.dir, err)
	}
	return nil
}

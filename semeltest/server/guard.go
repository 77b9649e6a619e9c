package server

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/semel-dev/semel/internal/process"
)

// guardScript waits until its input ends, which it does when the process that holds the other end dies, and cleans up.
// $1 is the server's directory, in which the file pid names the server while it runs. RabbitMQ's is a script, whose group has the
// server.
const guardScript = `cat >/dev/null
if pid=$(cat "$1/pid" 2>/dev/null); then
	kill -QUIT "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done
	kill -KILL "$pid" 2>/dev/null
	kill -KILL "-$pid" 2>/dev/null
fi
rm -rf "$1"`

// guard is a process that outlives this one: it ends the server and removes its directory when this process has died.
type guard struct {
	dir   string
	proc  *process.Process
	stdin io.Closer
	// forgotten is closed when the last process has ended and is forgotten.
	forgotten chan struct{}
}

func newGuard(dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "semel-server-guard", dir)
	process.Detach(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &guard{dir: dir, proc: p, stdin: stdin}, nil
}

// note tells the guard which process to end. Once it has ended its number may belong to another process: the guard forgets
// it.
func (g *guard) note(p *process.Process) error {
	if g.forgotten != nil {
		<-g.forgotten // or the last process's end would remove this one's file
	}
	file := filepath.Join(g.dir, "pid")
	if err := os.WriteFile(file, []byte(strconv.Itoa(p.Pid())), 0o644); err != nil {
		return err
	}
	forgotten := make(chan struct{})
	g.forgotten = forgotten
	go func() {
		defer close(forgotten)
		<-p.Done()
		_ = os.Remove(file)
	}()
	return nil
}

// close has the directory removed and waits for it.
func (g *guard) close() error {
	if g.proc == nil {
		return nil
	}
	_ = g.stdin.Close()
	err := g.proc.Wait()
	g.proc = nil
	if err != nil {
		return fmt.Errorf("remove %s: %w", g.dir, err)
	}
	return nil
}

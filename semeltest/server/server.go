package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// startTimeout bounds a start, crash recovery included; stopTimeout a stop, after which the server is killed.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// Options of a throw-away server. The zero value is a server with the durability of production.
type Options struct {
	// Settings are lines of the server's configuration, e.g. "lock_timeout": "50ms", "appendfsync": "always". They
	// override the defaults of this package, and hold for every start. PostgreSQL's values are quoted as text.
	Settings map[string]string
	// Dir is where the server's directory is made. Defaults to os.TempDir(). As root, every user must be able to pass it.
	Dir string
}

// Mode is how a server is stopped.
type Mode uint8

// The modes of PostgreSQL. Others take Smart and Fast for an orderly shutdown, and Immediate for a kill.
const (
	// Smart waits for clients to leave.
	Smart Mode = iota
	// Fast ends the sessions and writes a checkpoint.
	Fast
	// Immediate ends everything at once; the next start recovers.
	Immediate
)

// Server is a throw-away server. Its methods may be called from several goroutines.
type Server struct {
	kind kind
	dir  string
	port int
	bins binaries

	mu    sync.Mutex
	proc  *process.Process // nil before the first start
	guard *guard
}

// kind has the differences between servers.
type kind interface {
	name() string
	// command makes the command of a start.
	command(s *Server) *exec.Cmd
	// ready reports whether the server that was started takes clients.
	ready(s *Server) bool
	// signal is what stops it.
	signal(m Mode) syscall.Signal
	url(s *Server) string
}

// start makes a server from the files that create wrote, and starts it on a free port. If another process takes the port
// first, it tries the next one.
func start(ctx context.Context, s *Server, configure func(s *Server) error) error {
	var err error
	for range 5 {
		if s.port, err = FreePort(); err != nil {
			return err
		}
		if err = configure(s); err != nil {
			return err
		}
		if err = s.Start(ctx); err == nil || !bytes.Contains(s.log(), []byte("in use")) {
			return err
		}
	}
	return err
}

// makeDir makes the server's directory and its guard.
func makeDir(k kind, o Options) (*Server, error) {
	dir, err := os.MkdirTemp(o.Dir, "semel-"+k.name()+"-")
	if err != nil {
		return nil, fmt.Errorf("make the directory of a %s: %w", k.name(), err)
	}
	g, err := newGuard(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("guard %s: %w", dir, err)
	}
	return &Server{kind: k, dir: dir, guard: g}, nil
}

// URL is what clients connect to: postgres://postgres@127.0.0.1:PORT/postgres?sslmode=disable or
// redis://127.0.0.1:PORT/0. It stays the same over restarts.
func (s *Server) URL() string { return s.kind.url(s) }

// Addr is host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Dir is the server's directory: data, configuration and log.
func (s *Server) Dir() string { return s.dir }

// Pid is the process that owns all others of the server; 0 when it does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.proc.Pid()
}

// running needs the lock.
func (s *Server) running() bool { return s.proc != nil && s.proc.Running() }

// Start starts the server on its old port and data, and waits until it takes clients, two minutes at most. It does
// nothing when the server runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return nil
	}
	logFile, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", s.kind.name(), err)
	}
	defer logFile.Close()
	cmd := s.kind.command(s)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	process.Detach(cmd) // the guard ends it
	if s.proc, err = process.Start(cmd); err != nil {
		s.proc = nil
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := s.guard.note(s.proc); err != nil {
		return errors.Join(fmt.Errorf("note the process of %s: %w", s.kind.name(), err), s.kill())
	}
	return s.await(ctx)
}

// await needs the lock.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.kind.ready(s) {
		select {
		case <-s.proc.Done():
			return fmt.Errorf("start %s: it ended with %v; its log ends:\n%s", s.kind.name(), s.proc.State(), tail(s.log()))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("start %s: %w; its log ends:\n%s", s.kind.name(), context.Cause(ctx), tail(s.log())),
				s.kill())
		case <-tick.C:
		}
	}
	return nil
}

// Stop stops the server and waits until it is gone. After a minute it kills the server and returns an error. It does
// nothing when the server does not run.
func (s *Server) Stop(m Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(m)
}

func (s *Server) stop(m Mode) error {
	if !s.running() {
		return nil
	}
	if err := s.proc.Signal(s.kind.signal(m)); err != nil {
		return errors.Join(fmt.Errorf("stop %s: %w", s.kind.name(), err), s.kill())
	}
	select {
	case <-s.proc.Done():
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("stop %s: it still runs after %v, and was killed", s.kind.name(), stopTimeout), s.kill())
	}
}

// Kill ends all processes of the server with SIGKILL, as a power cut would, and waits until they are gone. What the
// operating system had in its cache survives: it is no test of the disk.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	if !s.running() {
		return nil
	}
	if err := s.proc.KillTree(); err != nil {
		return fmt.Errorf("kill %s: %w", s.kind.name(), err)
	}
	return nil
}

// Close kills the server and removes its directory.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.kill(), s.guard.close())
}

// Log is what the server wrote so far.
func (s *Server) Log() string { return string(s.log()) }

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

func (s *Server) log() []byte {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// tail is the end of a log that fits into an error.
func tail(b []byte) string {
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(bytes.TrimSpace(b))
}

// output runs a program and returns what it wrote; an error has it too.
func output(cmd *exec.Cmd) (string, error) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, tail(append(problems.Bytes(), out.Bytes()...)))
	}
	return out.String(), nil
}

// The ports that FreePort draws from. Systems give the ports above to connections and to listeners on port 0 (Linux from
// 32768 on, others from 49152).
const (
	firstPort = 10000
	portsEnd  = 32768
)

// FreePort returns a port of 127.0.0.1 on which nothing listens. It is none of those that the system gives out by itself: no
// connection and no listener on port 0 takes it before the caller listens, or while a server of the caller is stopped.
func FreePort() (int, error) {
	end := portsEnd
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		given := 0
		if _, err := fmt.Sscan(string(b), &given); err == nil && given > firstPort {
			end = given
		}
	}
	var err error
	for range 100 {
		port := firstPort + rand.IntN(end-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

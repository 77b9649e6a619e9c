package attack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	osprocess "github.com/semel-dev/semel/internal/process"
)

// point is where in a handler's run something happens to it.
type point string

const (
	atNone   point = ""
	atStart  point = "start"  // before its first instruction, or before it gets the message
	atEffect point = "effect" // at one of its requests to the service
	atEnd    point = "end"    // when everything is done, before the worker knows
)

// passed is what the shim writes of a run whose result it passed on.
const passed point = "passed"

// ShimArg is the hidden argument that makes this program the shim (see [Shim]).
const ShimArg = "__attack"

// shimmed puts the shim before a handler that is a program: semel __attack FILE run|lines PROG ARG….
func (r *runner) shimmed(file string, argv []string) []string {
	kind := "run"
	if r.Pipe {
		kind = "lines"
	}
	return append([]string{r.semel, ShimArg, file, kind}, argv...)
}

// shim runs between a worker and a handler program. It writes its runs to a file: of a program that is started for each message
// itself, of one that keeps running (docs/pipe.md) each message. It stops itself before or after a run if a file asks for that. It
// looks for the file before it writes, because the attack removes the file as soon as it reads the line.
type shim struct {
	file   string
	cmd    *exec.Cmd
	resume chan os.Signal

	mu   sync.Mutex
	runs map[uint64]bool // messages without a result
}

// Shim is the program of the shim. It returns the handler's exit status, and ends by the handler's signal.
func Shim(args []string) int {
	if len(args) < 3 {
		return 2
	}
	s := &shim{file: args[0], cmd: exec.Command(args[2], args[3:]...), resume: make(chan os.Signal, 1), runs: map[uint64]bool{}}
	s.cmd.Stderr = os.Stderr
	signal.Notify(s.resume, osprocess.Continue)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, os.Interrupt) // they are for the handler, which has them too
	if args[1] == "lines" {
		return s.lines()
	}
	return s.run()
}

// run runs a handler of one message. A run that is stopped at its start has all of its input: its worker may be stopped next,
// and could not pass it on.
func (s *shim) run() int {
	attempt, err := strconv.Atoi(os.Getenv("SEMEL_ATTEMPT"))
	if err != nil {
		attempt = 0
	}
	s.cmd.Stdin, s.cmd.Stdout = os.Stdin, os.Stdout
	hold := s.asked(atStart)
	if hold {
		b, err := io.ReadAll(os.Stdin)
		if err != nil {
			return 1
		}
		s.cmd.Stdin = bytes.NewReader(b)
	}
	s.write(atStart, 0, attempt)
	if hold {
		s.stop()
	}
	hold = s.asked(atEnd)
	code := s.end(s.cmd.Run())
	if hold {
		s.write(atEnd, 0, code)
		s.stop()
	}
	return code
}

// lines passes lines in both directions.
func (s *shim) lines() int {
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return 1
	}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return s.end(err)
	}
	go func() {
		each(os.Stdin, func(line []byte) bool {
			s.begin(line)
			_, err := in.Write(line)
			return err == nil
		})
		_ = in.Close() // the worker stops it
	}()
	each(out, func(line []byte) bool {
		ended := s.results(line)
		if len(ended) > 0 && s.asked(atEnd) {
			s.write(atEnd, ended[0], 0)
			s.stop()
		}
		_, err := os.Stdout.Write(line)
		for _, id := range ended {
			s.write(passed, id, 0)
		}
		return err == nil
	})
	return s.end(s.cmd.Wait())
}

// each calls f for each line, until it returns false.
func each(r io.Reader, f func(line []byte) bool) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 && !f(line) || err != nil {
			return
		}
	}
}

// shimMessage is what the shim reads of messages and results.
type shimMessage struct {
	ID      uint64 `json:"id"`
	Attempt int    `json:"attempt"`
}

func messagesOf(line []byte) (all []shimMessage) {
	if json.Unmarshal(line, &all) == nil {
		return all
	}
	var one shimMessage
	if json.Unmarshal(line, &one) == nil {
		return []shimMessage{one}
	}
	return nil
}

// begin writes down the messages of a line before the handler gets it.
func (s *shim) begin(line []byte) {
	for _, m := range messagesOf(line) {
		if m.ID == 0 {
			continue // it extends a lease, or cancels
		}
		hold := s.asked(atStart)
		s.mu.Lock()
		s.runs[m.ID] = true
		s.mu.Unlock()
		s.write(atStart, m.ID, m.Attempt)
		if hold {
			s.stop()
		}
	}
}

// results are the messages whose results a line has.
func (s *shim) results(line []byte) (ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messagesOf(line) {
		if s.runs[m.ID] {
			delete(s.runs, m.ID)
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (s *shim) asked(p point) bool {
	_, err := os.Stat(s.file + "." + string(p))
	return err == nil
}

// write writes down that a run is at a point.
func (s *shim) write(p point, run uint64, last int) {
	f, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // the attack has ended
	}
	_, _ = fmt.Fprintf(f, "%s %d %d %d\n", p, os.Getpid(), run, last)
	_ = f.Close()
}

// stop stops this process until the attack lets it continue.
func (s *shim) stop() {
	select {
	case <-s.resume:
	default:
	}
	if osprocess.StopSelf() == nil {
		<-s.resume // the signal stops all threads, this one not at once
	}
}

// end is the handler's exit status. If a signal ended the handler, it ends this process, too.
func (s *shim) end(err error) int {
	if err == nil {
		return 0
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		_, _ = fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127
		}
		return 126
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		signal.Reset(w.Signal())
		if p, err := os.FindProcess(os.Getpid()); err == nil && p.Signal(w.Signal()) == nil {
			select {}
		}
	}
	return exit.ExitCode()
}

// shimRun is a run that the shim wrote down.
type shimRun struct {
	pid    int // of the shim, which leads the handler's process group
	id     uint64
	passed bool
}

// ended reports that the run does nothing more.
func (r shimRun) ended() bool { return r.passed || dead(r.pid) }

// shimLine is a line of the shim.
type shimLine struct {
	at  point
	pid int
	id  uint64
}

// readShim reads what is written by now; a file that is not there yet has no lines.
func readShim(file string) []shimLine {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var out []shimLine
	for line := range strings.Lines(string(b)) {
		var l shimLine
		var last int
		if n, err := fmt.Sscanf(line, "%s %d %d %d\n", &l.at, &l.pid, &l.id, &last); err == nil && n == 4 {
			out = append(out, l)
		}
	}
	return out
}

// shimRuns are the runs in their order.
func (s *trial) shimRuns() (out []shimRun) {
	for _, l := range readShim(s.path("runs")) {
		switch l.at {
		case atStart:
			out = append(out, shimRun{pid: l.pid, id: l.id})
		case passed:
			for i := range out {
				out[i].passed = out[i].passed || out[i].pid == l.pid && out[i].id == l.id
			}
		}
	}
	return out
}

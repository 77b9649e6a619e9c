package eventlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Entry is one line of an events file: an event of the consumer, or one of the lab.
type Entry struct {
	At      int64  `json:"at"` // microseconds since 1970
	Kind    string `json:"kind"`
	Worker  int    `json:"worker,omitempty"` // from 1; 0 = the parent
	Life    int    `json:"life,omitempty"`   // from 1: how often this worker was started
	PID     int    `json:"pid,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`

	Count     int       `json:"count,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	Token     uint64    `json:"token,omitempty"`
	VisibleMS int64     `json:"visible_ms,omitempty"`
	Takeover  bool      `json:"takeover,omitempty"`
	Unknown   bool      `json:"unknown,omitempty"`
	Lease     bool      `json:"lease,omitempty"`
	Decision  string    `json:"decision,omitempty"`
	Cause     string    `json:"cause,omitempty"`
	Action    string    `json:"action,omitempty"`
	Outcome   string    `json:"outcome,omitempty"`
	AfterMS   int64     `json:"after_ms,omitempty"`
	Step      plan.Step `json:"step,omitempty"`
	Workers   int       `json:"workers,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Err       string    `json:"error,omitempty"`
}

// The events of the lab, next to the consumer's own kinds.
const (
	Spawn  = "spawn"  // parent: a process was started
	Exit   = "exit"   // parent: it ended; Reason says how
	Strike = "strike" // parent: it strikes a process from outside; Action says how
	Struck = "struck" // worker: it is about to be struck at a step; Action says how
	Thaw   = "thaw"   // parent: a frozen process goes on
	Down   = "down"   // parent: the database is out of reach
	Up     = "up"     // parent: it is back
	Sent   = "sent"   // parent: a message was accepted by the queue
	Depth  = "depth"  // parent: Count messages wait or are in flight, for n Workers
	Effect = "effect" // worker: the effect is durable
	Undone = "undone" // worker: a compensation ended; with Err it failed, and will be repeated
	Delay  = "delay"  // worker: the process could not go on for AfterMS
	Fault  = "fault"  // parent: a person injects a fault; Action is its marker file
	// worker: an unguarded one wrote the id down behind its work; or was refused, because it was there by then
	Recorded = "recorded"
	Refused  = "refused"
)

// Log appends entries to one process's events file: one write per entry, so that it survives a SIGKILL right after it.
type Log struct {
	mu                sync.Mutex
	file              *os.File
	worker, life, pid int
}

// Open opens the events file of one life of a worker; worker 0 is the parent.
func Open(path string, worker, life int) (*Log, error) {
	f, err := output.AppendFile(path)
	if err != nil {
		return nil, fmt.Errorf("open events file: %w", err)
	}
	return &Log{file: f, worker: worker, life: life, pid: os.Getpid()}, nil
}

// Add writes one entry; zero fields that name the process and the time are filled in. A failed write is dropped: the
// verdict never depends on this file, only the picture does.
func (l *Log) Add(e Entry) {
	if e.At == 0 {
		e.At = time.Now().UnixMicro()
	}
	if e.Worker == 0 {
		e.Worker = l.worker
	}
	if e.Life == 0 {
		e.Life = l.life
	}
	if e.PID == 0 {
		e.PID = l.pid
	}
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(append(line, '\n'))
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Read reads all events files of a folder, ordered by time. A last line that was cut by a kill is skipped.
func Read(dir string) ([]Entry, error) {
	files, err := filepath.Glob(filepath.Join(dir, "events-*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("list events files: %w", err)
	}
	slices.Sort(files)
	var all []Entry
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read events file: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e Entry
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Kind != "" {
				all = append(all, e)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read events file %s: %w", filepath.Base(name), err)
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return int(a.At - b.At) })
	return all, nil
}

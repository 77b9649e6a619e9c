// Package explain writes the events file of a worker, and describes what happened to one key as a timeline of sentences.
package explain

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Line is one event in an events file: a JSON object a line. Fields that do not apply are absent.
type Line struct {
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	Worker    string    `json:"worker"`
	Consumer  string    `json:"consumer,omitempty"`
	Tenant    string    `json:"tenant,omitempty"`
	Key       string    `json:"key,omitempty"`
	MessageID string    `json:"message_id,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	Token     uint64    `json:"token,omitempty"`
	Count     int       `json:"count,omitempty"`
	Route     string    `json:"route,omitempty"`
	Decision  string    `json:"decision,omitempty"`
	Cause     string    `json:"cause,omitempty"`
	Action    string    `json:"action,omitempty"`
	Outcome   string    `json:"outcome,omitempty"`
	Lease     bool      `json:"lease,omitempty"`
	Takeover  bool      `json:"takeover,omitempty"`
	Unknown   bool      `json:"unknown,omitempty"`
	AfterMS   int64     `json:"after_ms,omitempty"`
	VisibleMS int64     `json:"visible_ms,omitempty"`
	ElapsedMS float64   `json:"elapsed_ms,omitempty"`
	Error     string    `json:"error,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	// StoreCalls, ReadUnits and WriteUnits are in lines of kind consumed: consumption of the store since the previous line.
	StoreCalls int64   `json:"store_calls,omitempty"`
	ReadUnits  float64 `json:"read_units,omitempty"`
	WriteUnits float64 `json:"write_units,omitempty"`
	// Load is in lines of kind load, which the worker writes at intervals.
	Load *semel.Load `json:"load,omitempty"`
}

func lineOf(worker string, e semel.Event) Line {
	l := Line{
		At: e.At.UTC(), Kind: string(e.Kind), Worker: worker, Consumer: e.Key.Consumer, Tenant: e.Key.Tenant, Key: e.Key.Raw,
		MessageID: e.MessageID, Attempt: e.Attempt, Token: e.Token, Count: e.Count, Route: e.Route, Decision: string(e.Decision),
		Cause: string(e.Cause), Lease: e.Lease, Takeover: e.Takeover, Unknown: e.Unknown,
		AfterMS: e.After.Milliseconds(), VisibleMS: e.Visible.Milliseconds(),
		ElapsedMS: float64(e.Elapsed.Microseconds()) / 1000, Reason: e.Reason,
		StoreCalls: e.Units.Calls, ReadUnits: e.Units.Reads, WriteUnits: e.Units.Writes,
	}
	switch e.Kind {
	case semel.EventSettled:
		l.Action, l.Outcome = e.Action.String(), e.Outcome.String()
	case semel.EventExtended:
		l.Outcome = e.Outcome.String()
	default:
	}
	if e.Err != nil {
		l.Error = e.Err.Error()
	}
	return l
}

// Journal appends events to a file. Several workers may append to one file: each write is whole lines. Add never
// blocks on the disk: a goroutine writes, and pending events stay in memory.
type Journal struct {
	f      *os.File
	out    io.Writer // f, without escape sequences that a message may contain
	worker string

	mu      sync.Mutex
	pending []semel.Event
	loads   []Line
	closed  bool
	kick    chan struct{}
	done    chan struct{}
	err     error
}

// OpenJournal opens the file, and creates it if it does not exist.
func OpenJournal(path string) (*Journal, error) {
	f, err := output.AppendFile(path)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	j := &Journal{f: f, out: output.NewSafe(f), worker: fmt.Sprintf("%s:%d", host, os.Getpid()), kick: make(chan struct{}, 1), done: make(chan struct{})}
	go j.write()
	return j, nil
}

// Add records an event.
func (j *Journal) Add(e semel.Event) {
	j.mu.Lock()
	if !j.closed {
		j.pending = append(j.pending, e)
	}
	j.mu.Unlock()
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

// AddLoad records how busy the worker is.
func (j *Journal) AddLoad(at time.Time, l semel.Load) {
	j.mu.Lock()
	if !j.closed {
		j.loads = append(j.loads, Line{At: at.UTC(), Kind: "load", Worker: j.worker, Load: &l})
	}
	j.mu.Unlock()
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

func (j *Journal) write() {
	defer close(j.done)
	for {
		<-j.kick
		j.mu.Lock()
		batch, loads, closed := j.pending, j.loads, j.closed
		j.pending, j.loads = nil, nil
		j.mu.Unlock()
		if err := errors.Join(j.append(batch), j.appendLoads(loads)); err != nil && j.err == nil {
			j.err = err
		}
		if closed {
			return
		}
	}
}

// append writes a batch in chunks of whole lines.
func (j *Journal) append(batch []semel.Event) error {
	var buf []byte
	for i, e := range batch {
		b, err := json.Marshal(lineOf(j.worker, e))
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		buf = append(append(buf, b...), '\n')
		if len(buf) < 256<<10 && i < len(batch)-1 {
			continue
		}
		if _, err := j.out.Write(buf); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		buf = buf[:0]
	}
	return nil
}

func (j *Journal) appendLoads(lines []Line) error {
	for i := range lines {
		b, err := json.Marshal(&lines[i])
		if err == nil {
			_, err = j.out.Write(append(b, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
	}
	return nil
}

// Close writes the pending events and closes the file. It returns the first error of all writes.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	select {
	case j.kick <- struct{}{}:
	default:
	}
	<-j.done
	return errors.Join(j.err, j.f.Close())
}

// Read calls each with the lines of an events file, in order. It ignores a last line that a crash cut off. Any other
// malformed line is an error.
func Read(path string, each func(Line)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		b, err := r.ReadBytes('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if len(b) == 0 {
			return nil
		}
		var l Line
		if err := json.Unmarshal(b, &l); err != nil {
			if !whole {
				return nil
			}
			return fmt.Errorf("%s:%d: not a line of an events file: %w", path, n, err)
		}
		each(l)
	}
}

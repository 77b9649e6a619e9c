package ops

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// EventLine is one event in an events file: a JSON object a line. Fields that do not apply are absent.
type EventLine struct {
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

func lineOf(worker string, e semel.Event) EventLine {
	l := EventLine{
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

// EventLog writes events as JSON lines. Adding never blocks on the writer: a goroutine writes, and pending events stay in memory.
type EventLog struct {
	out    io.WriteCloser
	worker string

	mu      sync.Mutex
	pending []pendingEvent
	closed  bool
	kick    chan struct{}
	done    chan error
}

type pendingEvent struct {
	semel.Event
	load *semel.Load
}

// NewEventLog writes events to out, in chunks of whole lines, so that several workers may append to one file. The lines name the
// worker by host and process. Close it.
func NewEventLog(out io.WriteCloser) *EventLog {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	l := &EventLog{out: out, worker: fmt.Sprintf("%s:%d", host, os.Getpid()), kick: make(chan struct{}, 1), done: make(chan error, 1)}
	go l.write()
	return l
}

// Add records an event: [semel.Observe] makes it the events of a consumer. After Close it does nothing.
func (l *EventLog) Add(e semel.Event) { l.add(pendingEvent{Event: e}) }

// AddLoad records how busy the worker is.
func (l *EventLog) AddLoad(at time.Time, load semel.Load) {
	l.add(pendingEvent{semel.Event{At: at, Kind: "load"}, &load})
}

func (l *EventLog) add(e pendingEvent) {
	l.mu.Lock()
	if !l.closed {
		l.pending = append(l.pending, e)
	}
	l.mu.Unlock()
	l.wake()
}

func (l *EventLog) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *EventLog) write() {
	var first error
	for closed := false; !closed; {
		<-l.kick
		var batch []pendingEvent
		l.mu.Lock()
		batch, l.pending, closed = l.pending, nil, l.closed
		l.mu.Unlock()
		if err := l.append(batch); first == nil {
			first = err
		}
	}
	l.done <- first
}

// append writes a batch in chunks of whole lines.
func (l *EventLog) append(batch []pendingEvent) error {
	var buf []byte
	for i, e := range batch {
		line := lineOf(l.worker, e.Event)
		line.Load = e.load
		b, err := json.Marshal(line)
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		buf = append(append(buf, b...), '\n')
		if len(buf) < 256<<10 && i < len(batch)-1 {
			continue
		}
		if _, err := l.out.Write(buf); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		buf = buf[:0]
	}
	return nil
}

// Close writes the pending events and closes the writer. It returns the first error of all writes. Call it once.
func (l *EventLog) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wake()
	return errors.Join(<-l.done, l.out.Close())
}

// ReadEvents calls each with the lines of an events file, in order. It ignores a last line that a crash cut off. Any other
// malformed line is an error.
func ReadEvents(path string, each func(EventLine)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return readLines(path, f, func(b []byte) error {
		var l EventLine
		if err := json.Unmarshal(b, &l); err != nil {
			return fmt.Errorf("not a line of an events file: %w: %w", errNotJSON, err)
		}
		each(l)
		return nil
	})
}

var errNotJSON = errors.New("not a JSON object")

// readLines calls each with the lines that are not empty. It ignores an errNotJSON of a last line that was cut off. Errors name
// the line.
func readLines(name string, in io.Reader, each func([]byte) error) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		b, err := r.ReadBytes('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if len(bytes.TrimSpace(b)) > 0 {
			if err := each(b); err != nil && (whole || !errors.Is(err, errNotJSON)) {
				return fmt.Errorf("%s:%d: %w", name, n, err)
			}
		}
		if !whole {
			return nil
		}
	}
}

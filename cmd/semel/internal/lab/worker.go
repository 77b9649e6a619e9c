package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/semel-dev/semel"
)

// workerSpec is what the parent tells a worker process: one JSON line on its standard input.
type workerSpec struct {
	Guard      Guard         `json:"guard"`
	Database   string        `json:"database"`
	Queue      string        `json:"queue"`
	Visibility time.Duration `json:"visibility"`
	Worker     int           `json:"worker"`
	Life       int           `json:"life"`
	Events     string        `json:"events"`
	Markers    string        `json:"markers"`
	Kills      []Kill        `json:"kills"`
	// Concurrency is for the guarded worker, Prefetch for the unguarded one.
	Concurrency int           `json:"concurrency"`
	Prefetch    int           `json:"prefetch"`
	Grace       time.Duration `json:"grace"`
}

// order is the body of a message.
type order struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
	WorkMS int    `json:"work_ms"`
	HangMS int    `json:"hang_ms,omitempty"` // the first delivery only
}

// WorkerMain is a worker process: the hidden command that the runner starts. It reads its spec from standard input,
// works until standard input ends (the parent asks it to stop, or is dead), drains, and returns the exit code.
// Interrupts are the parent's business: a Ctrl-C that reaches the whole terminal must not make a worker drain while
// its parent thinks it at work.
func WorkerMain([]string) int {
	signal.Ignore(os.Interrupt)
	if err := workerMain(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "lab worker:", err)
		return 1
	}
	return 0
}

func workerMain(stdin io.Reader) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the worker's spec from standard input: %w", err)
	}
	var spec workerSpec
	if err := json.Unmarshal(line, &spec); err != nil {
		return fmt.Errorf("decode the worker's spec: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
		// A parent that died does not wait for us: never outlive the grace by much.
		time.Sleep(spec.Grace + 5*time.Second)
		killSelf()
	}()
	return runWorker(ctx, spec)
}

func runWorker(ctx context.Context, spec workerSpec) (err error) {
	log, err := openJournal(spec.Events, spec.Worker, spec.Life)
	if err != nil {
		return err
	}
	defer func() { _ = log.close() }()
	r, err := openRig(ctx, spec.Database, spec.Queue, spec.Visibility)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	w := &worker{spec: spec, rig: r, log: log, gate: newGate(spec.Kills, spec.Worker, spec.Markers, log)}
	keys := newKeyring()
	w.queue = &stepQueue{labQueue: r.queue, gate: w.gate, log: log, keys: keys}
	if spec.Guard == GuardOff {
		return w.naive(ctx)
	}
	w.store = &stepStore{labStore: r.store, gate: w.gate, log: log, keys: keys}
	return w.guarded(ctx)
}

type worker struct {
	spec  workerSpec
	rig   *rig
	queue *stepQueue
	store *stepStore
	gate  *gate
	log   *journal
}

// guarded is the same work behind semel: the handler queues its effect, which commits together with the record and the
// ack.
func (w *worker) guarded(ctx context.Context) error {
	c, err := semel.New(semel.Config{
		Queue: w.queue, Store: w.store, Handler: semel.InTx(w.apply),
		Key:         func(m *semel.Message) (string, error) { return m.Header(orderHeader), nil },
		Concurrency: w.spec.Concurrency,
		Visibility:  w.spec.Visibility,
		Backoff:     semel.Backoff{Min: 100 * time.Millisecond, Max: time.Second},
		Grace:       w.spec.Grace,
		Events:      semel.Observe(w.observe),
	})
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	return nil
}

func (w *worker) apply(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
	o, err := decodeOrder(a.Body)
	if err != nil {
		return semel.Permanent(err)
	}
	if err := work(ctx, o, a.Redelivered); err != nil {
		return err
	}
	tx.ExecRows(1, insertEffect, w.effectArgs(o, a.ID, a.Number)...)
	return nil
}

// observe notes the consumer's events. Receiving, extending the visibility and settling are noted by the queue's
// decorator, which sees them for the unguarded worker too.
func (w *worker) observe(e semel.Event) {
	switch e.Kind {
	case semel.EventReceived, semel.EventSettled:
		return
	case semel.EventExtended:
		if !e.Lease {
			return
		}
	}
	n := Entry{
		Kind: string(e.Kind), Key: e.Key.Raw, Message: e.MessageID, Count: e.Count, Attempt: e.Attempt,
		Token: e.Token, VisibleMS: e.Visible.Milliseconds(), Takeover: e.Takeover, Unknown: e.Unknown, Lease: e.Lease,
		Decision: string(e.Decision), Cause: string(e.Cause), AfterMS: e.After.Milliseconds(), Reason: e.Reason,
	}
	if e.Kind == semel.EventExtended {
		n.Outcome = e.Outcome.String()
	}
	if !e.At.IsZero() {
		n.At = e.At.UnixMicro()
	}
	if e.Err != nil {
		n.Err = e.Err.Error()
	}
	w.log.add(n)
}

func decodeOrder(body []byte) (order, error) {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return o, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}

// work stands for the time that a payment takes.
func work(ctx context.Context, o order, redelivered bool) error {
	ms := o.WorkMS
	if !redelivered {
		ms += o.HangMS
	}
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) effectArgs(o order, message string, attempt int) []any {
	return []any{
		o.Order, o.Amount, message, attempt, w.spec.Worker, w.spec.Life, os.Getpid(), time.Now().UnixMicro(),
	}
}

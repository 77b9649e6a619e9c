// Package crew runs consumers on PostgreSQL as real processes, to be killed, frozen and thawed, and judges them by a
// ledger: a table without any constraint, where every effect leaves a row. Only the rows count, not the reports of the
// workers. Tests of single faults and the campaign of many share it.
package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/wait"
)

// environment carries the task of a worker process.
const environment = "SEMEL_CREW_TASK"

// reportEvery is how often a worker says what it did.
const reportEvery = 50 * time.Millisecond

// Mode is how a worker makes effects.
type Mode string

// The modes. The last two are mistakes, planted to see whether the verdict notices.
const (
	// Queued: the handler collects statements, which commit with the record (protocol section 3, mode A2).
	Queued Mode = "a2"
	// Open: the handler works in the open transaction that holds the record (sections 4 and 5, modes B and C).
	Open Mode = "c"
	// Batched: the handler gets a batch, and one statement is the effect of all of it (mode C); it is sent with the commit.
	Batched Mode = "batch"
	// BatchedOpen is the same with a handler that works in the open transaction.
	BatchedOpen Mode = "batch-tx"
	// Outside writes the effect by itself, as a handler does whose effect is not in the store: a crash in between leaves a
	// doubt, and the effect may happen once more for each (section 2, mode A).
	Outside Mode = "outside"
	// MarkLast is the inbox that people write: look, do, mark, ack, each by itself. It doubles.
	MarkLast Mode = "mark-last"
	// MarkFirst marks before it does. It loses.
	MarkFirst Mode = "mark-first"
)

// Modes are the modes whose effects commit with their records.
var Modes = []Mode{Queued, Open, Batched, BatchedOpen}

// Known reports whether there is such a mode.
func (m Mode) Known() bool {
	return slices.Contains(Modes, m) || m == Outside || m == MarkLast || m == MarkFirst
}

// Queue is the usual name of the queue.
const Queue = "orders"

// Task configures a worker process.
type Task struct {
	// URL is the database of the ledger, and of queue and records, unless Kind names others.
	URL   string
	Queue string
	// Kind is where queue and records are, and At the URL of the queue's server: see [Task.Open].
	Kind, At string
	Mode     Mode
	// Visibility, Work (how long a handler takes), LockWait and MaxTx: 0 = the default, for Work none.
	Visibility, Work, LockWait, MaxTx time.Duration
	Concurrency, Committers, Batch    int
}

// Report is what a worker says of itself. It is for diagnosis: verdicts do not rest on it.
type Report struct {
	semel.Summary
	// Paused counts how often it stopped polling because the store did not respond, Doubts how often an outcome was unknown.
	Paused, Doubts, Troubles int64
	// Trouble is the latest.
	Trouble string
}

// MainIfWorker runs a worker and ends the process, when the process was started to be one. It is the first call of a
// main or TestMain.
func MainIfWorker() {
	text := os.Getenv(environment)
	if text == "" {
		return
	}
	if err := work(text); err != nil {
		fmt.Fprintf(os.Stderr, "worker %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work runs until SIGTERM, and drains.
func work(text string) error {
	var t Task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent dies: nobody would stop us any more
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o, err := open(ctx, t)
	if err != nil {
		if ctx.Err() != nil { // stopped before it began
			return nil
		}
		return err
	}
	if t.Mode == MarkLast || t.Mode == MarkFirst {
		naive(ctx, o.postgres, t)
		return o.Close()
	}
	return errors.Join(consume(ctx, o, t), o.Close())
}

// open waits for servers that are just restarting, as a supervisor's restarts of the process would.
func open(ctx context.Context, t Task) (o *Opened, err error) {
	for deadline := time.Now().Add(time.Minute); ; Sleep(ctx, 50*time.Millisecond) {
		if o, err = t.Open(ctx); err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return o, err
		}
	}
}

func consume(ctx context.Context, o *Opened, t Task) error {
	var r reporter
	c, err := semel.New(semel.Config{
		Queue: o.Queue, Store: o.Store, Handler: t.handler(o),
		Key:        func(m *semel.Message) (string, error) { return string(m.Body), nil },
		Visibility: t.Visibility, Concurrency: t.Concurrency, Committers: t.Committers, Batch: t.Batch,
		// A lease that ends because the machine stands still spends an attempt: no test wants a dead letter for that.
		MaxAttempts: 1000, Grace: 5 * time.Second, Backoff: semel.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
		Events: semel.Events{Health: r.health, Attempt: r.attempt}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	reporting, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.report(reporting, c) })
	err = c.Run(ctx)
	end()
	wg.Wait()
	return err
}

// Sleep waits, or returns when ctx is done. As the work of a handler it is one that goes on regardless.
func Sleep(ctx context.Context, d time.Duration) { _ = wait.Until(ctx, time.Now().Add(d)) }

// reporter writes reports to stdout, a JSON line each.
type reporter struct {
	mu sync.Mutex
	r  Report
}

func (r *reporter) health(e semel.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case semel.EventPaused:
		r.r.Paused++
	case semel.EventTrouble:
		r.r.Troubles++
	}
	if e.Err != nil {
		r.r.Trouble = e.Err.Error()
	}
}

func (r *reporter) attempt(e semel.Event) {
	if e.Kind != semel.EventDoubt {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.r.Doubts++
}

func (r *reporter) report(ctx context.Context, c *semel.Consumer) {
	out := json.NewEncoder(os.Stdout)
	for ended := false; !ended; {
		Sleep(ctx, reportEvery)
		ended = ctx.Err() != nil // one more: what was counted last
		r.mu.Lock()
		now := r.r
		r.mu.Unlock()
		now.Summary = c.Summary()
		if out.Encode(now) != nil {
			return // nobody listens any more
		}
	}
}

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/explain"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// NaiveCommand is the hidden subcommand of `semel lab attack` that is the consumer with the guard off.
const NaiveCommand = "naive-consumer"

// naive is the configuration of the naive consumer, as JSON on its command line.
type naive struct {
	Database, Events string
	Argv             []string
	HTTP             string
	Key              string
	Visibility       time.Duration
	Timeout, Grace   time.Duration
	Attempts         int
}

func (s *trial) naiveArgs() []string {
	n := naive{
		Database: s.path("queue.db"), Events: s.path("events.jsonl"), Key: s.Key, Visibility: s.visibility,
		Timeout: s.timeout, Grace: killGrace(s.visibility), Attempts: s.maxAttempts,
	}
	if s.proxy != nil {
		n.HTTP = s.proxy.url
	} else {
		n.Argv = shimmed(s.path("runs"), guardOff, s.handlerArgv())
	}
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // strings and numbers
	}
	return []string{"lab", "attack", NaiveCommand, string(b)}
}

// Naive is the consumer that people write by hand: receive, call the handler, delete the message when it succeeded,
// leave it when it failed. It keeps no records, and has no effect key to give. It runs until ctx ends.
func Naive(ctx context.Context, spec string, errs io.Writer) (err error) {
	var n naive
	if err := json.Unmarshal([]byte(spec), &n); err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	db, err := sqlite.Open(ctx, n.Database, sqlite.Options{Create: true, Visibility: n.Visibility})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	log, err := os.OpenFile(n.Events, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the events: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	argv, err := worker.GuardArgv()
	if err != nil {
		return err
	}
	guard, err := worker.StartGuard(argv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	c := &naiveConsumer{naive: n, queue: db.Queue(queueName), log: log}
	logger := slog.New(slog.NewTextHandler(errs, nil))
	if n.HTTP != "" {
		c.run = worker.NewHTTP(worker.HTTP{URL: n.HTTP, Queue: queueName, Keep: 1 << 10, Log: logger}, 8)
	} else {
		c.run = &worker.Exec{Argv: n.Argv, Queue: queueName, Keep: 1 << 10, KillGrace: n.Grace, Log: logger, Guard: guard}
	}
	return c.consume(ctx)
}

type naiveConsumer struct {
	naive
	queue *sqlite.Queue
	run   worker.Runner
	mu    sync.Mutex
	log   *os.File
}

func (c *naiveConsumer) note(l explain.Line) {
	l.At = time.Now().UTC()
	b, err := json.Marshal(l)
	if err != nil {
		return // strings and numbers
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.log.Write(append(b, '\n'))
}

func (c *naiveConsumer) consume(ctx context.Context) error {
	var busy sync.WaitGroup
	defer busy.Wait()
	for ctx.Err() == nil {
		ds, err := c.queue.Receive(ctx, 8)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("receive: %w", err)
		}
		for i := range ds {
			busy.Go(func() { c.one(ctx, &ds[i]) })
		}
	}
	return nil
}

// one handles a delivery. When the consumer stops, it stops the handler and leaves the message in the queue.
func (c *naiveConsumer) one(ctx context.Context, d *driver.Delivery) {
	id := d.ID
	if take, err := key.Parse(c.Key); err == nil {
		if raw, err := take(&d.Message); err == nil {
			id = raw
		}
	}
	line := explain.Line{Key: id, MessageID: d.ID, Attempt: d.Count, Count: d.Count}
	at := func(kind string) explain.Line {
		l := line
		l.Kind = kind
		return l
	}
	c.note(at("received"))
	c.note(at("started"))
	limit, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	began := time.Now()
	_, _, err := c.run.Run(limit, &semel.Attempt{
		Message: d.Message, Key: driver.Key{Consumer: queueName, Raw: id}, Number: d.Count, MaxAttempts: c.Attempts,
		Redelivered: d.Count > 1, Deadline: began.Add(c.Visibility),
	})
	ended := at("ended")
	ended.ElapsedMS = float64(time.Since(began).Microseconds()) / 1000
	s := driver.Settlement{Receipt: d.Receipt, Action: driver.Ack}
	done := at("decided")
	done.Decision = "executed"
	if err != nil {
		ended.Error = err.Error()
		done.Decision, done.Reason = "retried", err.Error()
		s.Action, s.After = driver.Retry, 100*time.Millisecond
		if d.Count >= c.Attempts {
			done.Decision, s.Action = "dead_lettered", driver.Ack
		}
	}
	c.note(ended)
	if _, err := c.queue.Settle(context.WithoutCancel(ctx), s); err != nil {
		return // it comes again
	}
	c.note(done)
	settled := at("settled")
	settled.Action = s.Action.String()
	c.note(settled)
}

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/semel-dev/semel/driver"
)

const (
	queueName = "orders"
	// grace is how long a worker may take to drain: longer than the longest buffer of slow orders.
	grace = 15 * time.Second
	// tick is how often the parent looks.
	tick = 20 * time.Millisecond
)

// runner runs one scenario once.
type runner struct {
	scenario Scenario
	plan     Plan
	dir      string // of this run: events files, markers, the SQLite file
	place    string // where queue, records and ledger are: a path, or a postgres:// URL
	command  []string
	env      []string
	progress func(string)

	rig     *rig
	fleet   *fleet
	log     *journal
	began   time.Time
	sent    int
	outside []Kill // not yet done
}

// result is what a run left behind.
type result struct {
	run     Run
	effects []Effect
	entries []Entry
	began   time.Time
}

func (r *runner) path(name string) string { return filepath.Join(r.dir, name) }

// run runs on a goroutine and OS thread of its own (see fleet), and leaves no process behind, whatever it returns.
func (r *runner) run(ctx context.Context) (res result, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		res, err = r.onThread(ctx)
	}()
	<-done
	return res, err
}

func (r *runner) onThread(ctx context.Context) (res result, err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return res, fmt.Errorf("make the run's folder: %w", err)
	}
	if r.rig, err = openRig(ctx, r.place, queueName, r.scenario.Workers.Visibility); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.rig.close()) }()
	if r.log, err = openJournal(r.path("events-parent.jsonl"), 0, 0); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.log.close()) }()

	r.fleet = newFleet(r.scenario.Workers.Count, r.command)
	r.fleet.env, r.fleet.restart, r.fleet.log, r.fleet.spec = r.env, r.scenario.Workers.Restart, r.log, r.spec
	defer r.fleet.abandon()
	for _, k := range r.plan.Kills {
		if k.Step == Outside {
			r.outside = append(r.outside, k)
		}
	}
	r.began = time.Now()
	if err := r.drive(ctx); err != nil {
		return res, err
	}
	elapsed := time.Since(r.began)
	if err := r.fleet.stop(grace); err != nil {
		return res, err
	}
	return r.verdict(ctx, elapsed)
}

func (r *runner) spec(worker, life int) workerSpec {
	w := r.scenario.Workers
	return workerSpec{
		Guard: r.plan.Guard, Database: r.place, Queue: queueName, Visibility: w.Visibility,
		Worker: worker, Life: life, Markers: r.dir,
		Events: r.path(fmt.Sprintf("events-%d-%d.jsonl", worker, life)),
		Kills:  r.plan.Kills, Concurrency: w.Concurrency, Prefetch: w.Prefetch, Grace: grace - 2*time.Second,
	}
}

// drive keeps workers alive, sends what is due and kills what is due, until everything was sent and the queue is empty.
func (r *runner) drive(ctx context.Context) error {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	deadline := time.NewTimer(r.scenario.Timeout)
	defer deadline.Stop()
	lastWord := time.Now()
	for {
		if err := r.fleet.start(time.Now()); err != nil {
			return err
		}
		if err := r.send(ctx); err != nil {
			return err
		}
		effects, stats, err := r.look(ctx)
		if err != nil {
			return err
		}
		r.killOutside(effects)
		if r.sent == len(r.plan.Sends) && stats.Empty() {
			return nil
		}
		if time.Since(lastWord) > 250*time.Millisecond {
			lastWord = time.Now()
			r.say(effects)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("the queue is not empty after %s: %d visible, %d in flight, %d delayed; %d of %d sent",
				r.scenario.Timeout, stats.Visible, stats.InFlight, stats.Delayed, r.sent, len(r.plan.Sends))
		case e := <-r.fleet.exits:
			if err := r.fleet.gone(e, time.Now()); err != nil {
				return err
			}
		case <-clock.C:
		}
	}
}

func (r *runner) say(effects int) {
	r.progress(fmt.Sprintf("guard %-3s  %d of %d messages sent, %d effects in the ledger, %d workers killed",
		r.plan.Guard, r.sent, len(r.plan.Sends), effects, r.fleet.kills))
}

// send sends the messages that are due by the load's rate.
func (r *runner) send(ctx context.Context) error {
	due := len(r.plan.Sends)
	if rate := r.scenario.Load.Rate; rate > 0 {
		due = min(due, 1+int(time.Since(r.began).Seconds()*rate))
	}
	if due <= r.sent {
		return nil
	}
	batch := r.plan.Sends[r.sent:due]
	messages := make([]driver.Message, len(batch))
	for i, s := range batch {
		body, err := json.Marshal(order{Order: s.Key, Amount: r.scenario.Load.Amount, WorkMS: s.WorkMS, HangMS: s.HangMS})
		if err != nil {
			return fmt.Errorf("encode %s: %w", s.Key, err)
		}
		messages[i] = driver.Message{ID: s.ID, Queue: queueName, Body: body, Headers: map[string]string{orderHeader: s.Key}}
	}
	if err := r.rig.queue.Send(ctx, messages...); err != nil {
		return fmt.Errorf("send %d messages: %w", len(messages), err)
	}
	for _, s := range batch {
		r.log.add(Entry{Kind: noteSent, Key: s.Key, Message: s.ID, Count: s.Copy})
	}
	r.sent = due
	return nil
}

func (r *runner) look(ctx context.Context) (effects int, stats driver.QueueStats, err error) {
	if err := r.rig.sql.QueryRowContext(ctx, countEffects).Scan(&effects); err != nil {
		return 0, stats, fmt.Errorf("count the ledger: %w", err)
	}
	if stats, err = r.rig.queue.Stats(ctx); err != nil {
		return 0, stats, fmt.Errorf("look at the queue: %w", err)
	}
	return effects, stats, nil
}

func (r *runner) killOutside(effects int) {
	keep := r.outside[:0]
	for _, k := range r.outside {
		if effects < k.AtEffects || !r.fleet.kill(k.Worker, time.Now()) {
			keep = append(keep, k)
		}
	}
	r.outside = keep
}

// verdict reads the ledger, after every worker is gone.
func (r *runner) verdict(ctx context.Context, elapsed time.Duration) (res result, err error) {
	if res.effects, err = readLedger(ctx, r.rig.sql); err != nil {
		return res, err
	}
	aside, err := r.rig.setAside(ctx)
	if err != nil {
		return res, err
	}
	if res.entries, err = readJournals(r.dir); err != nil {
		return res, err
	}
	res.began = r.began
	res.run = judge(r.scenario, r.plan, count(r.plan.Sends, res.effects, aside.Keys), aside, res.entries)
	res.run.Kills = r.fleet.kills
	res.run.ElapsedMS = elapsed.Milliseconds()
	return res, nil
}

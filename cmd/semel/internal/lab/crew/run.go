package crew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
	"github.com/semel-dev/semel/driver"
)

// Config is where and how one run takes place.
type Config struct {
	Scenario plan.Scenario
	Plan     plan.Plan
	// Dir is the folder of the run: events files, markers, and an SQLite file where there is one. Place is where queue,
	// records and ledger are.
	Dir  string
	URLs place.URLs
	// Command and Env start a worker process.
	Command, Env []string
	// Progress gets short lines for a person.
	Progress func(string)
	// Watch makes it a run that a person watches and disturbs. Defaults to none.
	Watch *Watch
}

// Result is what a run left behind.
type Result struct {
	Effects []place.Effect
	Aside   place.Aside
	Entries []eventlog.Entry
	Began   time.Time
	Elapsed time.Duration
	// Kills counts the processes that ended by SIGKILL.
	Kills int
	// Sent are the messages that were sent: those of the plan, but for runs that were watched.
	Sent []plan.Send
}

// Run runs a scenario once. It leaves no process behind,
// whatever it returns. When ctx ends, the workers are killed and the error is its cause.
func Run(ctx context.Context, s Config) (Result, error) {
	return (&runner{Config: s}).run(ctx)
}

type runner struct {
	Config

	place   *place.Place
	fleet   *fleet
	log     *eventlog.Log
	began   time.Time
	load    []plan.Send // what is to be sent
	sent    int
	later   bool // Plan.Later is being sent
	strikes strikes
	scaler  scaler
	empty   time.Time // since when the queue looks empty; zero: it does not
	watch   watch
	waiting int64 // messages that are not in flight, at the last look
	ready   bool  // every worker consumes
}

func (r *runner) path(name string) string { return filepath.Join(r.Dir, name) }

func (r *runner) run(ctx context.Context) (res Result, err error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return res, fmt.Errorf("make the run's folder: %w", err)
	}
	if r.place, err = place.Open(ctx, r.URLs, r.Scenario.Workers.Visibility); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.place.Close()) }()
	if r.log, err = eventlog.Open(r.path("events-parent.jsonl"), 0, 0); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.log.Close()) }()

	r.fleet = newFleet(r.Scenario.Workers.Count, r.Command)
	r.fleet.env, r.fleet.restart, r.fleet.log, r.fleet.spec = r.Env, r.Scenario.Workers.Restart, r.log, r.spec
	// Only semel drains: the other designs do not handle SIGTERM.
	r.fleet.drains = r.Plan.Guard == plan.GuardOn
	defer r.fleet.abandon()
	r.strikes = newStrikes(r)
	if scale := r.Scenario.Workers.Scale; scale.Backlog > 0 {
		r.fleet.wanted = scale.From
		r.scaler = scaler{Scale: scale, max: r.Scenario.Workers.Count}
		if scale.GuardOn && r.Plan.Guard == plan.GuardOff {
			r.scaler.max = scale.From
		}
	}
	defer func() { err = errors.Join(err, r.strikes.end()) }()
	if r.load, r.began = r.Plan.Sends, time.Now(); r.Watch != nil {
		r.load = r.Scenario.Round(r.Plan.Seed, 0)
	}
	if err := r.drive(ctx); err != nil {
		return res, err
	}
	res.Began, res.Elapsed = r.began, time.Since(r.began)
	if err := r.fleet.stop(r.Scenario.Timeout); err != nil {
		return res, err
	}
	return r.gather(ctx, res)
}

func (r *runner) spec(n, life int) worker.Spec {
	return worker.Spec{
		Design: r.Scenario.Designs[r.Plan.Guard], URLs: r.URLs, Dir: r.Dir,
		Events: r.path(fmt.Sprintf("events-%d-%d.jsonl", n, life)),
		Seed:   r.Plan.Seed, Worker: n, Life: life, Workers: r.Scenario.Workers,
		Watched: r.Watch != nil, Versions: r.Scenario.Load.Versions > 0, Wire: r.Scenario.Wire, Strikes: r.Plan.Strikes, Grace: r.Scenario.Timeout - 2*time.Second,
	}
}

// drive keeps workers alive, sends what is due and strikes what is due, until everything was sent and the queue is empty.
func (r *runner) drive(ctx context.Context) error {
	clock := time.NewTicker(r.place.PollInterval)
	defer clock.Stop()
	limit := r.Scenario.Timeout
	if r.Watch != nil {
		limit += WatchLimit
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	reported := time.Now()
	for {
		if err := r.fleet.start(time.Now()); err != nil {
			return err
		}
		if err := r.sendReady(ctx); err != nil {
			return err
		}
		effects, stats, err := r.look(ctx)
		if err != nil {
			return err
		}
		if err := r.strikes.look(ctx, effects, time.Now()); err != nil {
			return err
		}
		r.scaler.look(int(stats.Visible+stats.InFlight), r.sent < len(r.load), r.fleet, r.log, time.Now())
		if r.waiting = stats.Visible; r.Watch != nil {
			if err := r.watched(ctx, stats, time.Now()); err != nil {
				return err
			}
		}
		if r.over(stats, time.Now()) && !r.strikes.lasting() && !r.more() {
			return nil
		}
		if time.Since(reported) > 250*time.Millisecond {
			reported = time.Now()
			r.report(effects)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("the queue is not empty after %s: %d visible, %d in flight, %d delayed; %d of %d sent",
				limit, stats.Visible, stats.InFlight, stats.Delayed, r.sent, len(r.load))
		case e := <-r.fleet.exits:
			if err := r.fleet.gone(e, time.Now()); err != nil {
				return err
			}
		case a := <-r.faults():
			if err := r.inject(ctx, a, time.Now()); err != nil {
				return err
			}
		case <-clock.C:
		}
	}
}

// over reports whether everything was sent and the queue is empty. An approximate count must stay at zero for a while.
func (r *runner) over(stats driver.QueueStats, now time.Time) bool {
	if r.sent < len(r.load) || !stats.Empty() {
		r.empty = time.Time{}
		return false
	}
	if r.empty.IsZero() {
		r.empty = now
	}
	return now.Sub(r.empty) >= r.place.Quiet
}

// more starts to send Plan.Later, once everything else is done.
func (r *runner) more() bool {
	if r.Watch != nil || r.later || len(r.Plan.Later) == 0 {
		return false
	}
	r.empty = time.Time{}
	r.later, r.load = true, append(r.load[:len(r.load):len(r.load)], r.Plan.Later...)
	return true
}

func (r *runner) report(effects int) {
	r.Progress(fmt.Sprintf("%s, guard %-3s  %d of %d messages sent, %d effects in the ledger, %d workers killed",
		r.Scenario.Name, r.Plan.Guard, r.sent, len(r.load), effects, r.fleet.kills))
}

// send sends the messages that are due by the load's rate.
func (r *runner) send(ctx context.Context) error {
	due := len(r.load)
	switch rate := r.Scenario.Load.Rate; {
	case r.Watch != nil:
		due = r.due(r.waiting, time.Now())
	case rate > 0:
		due = min(due, 1+int(time.Since(r.began).Seconds()*rate))
	}
	if due <= r.sent {
		return nil
	}
	batch := r.load[r.sent:due]
	messages := make([]driver.Message, len(batch))
	for i, s := range batch {
		m, err := worker.Message(s, r.Scenario.Load.Amount)
		if err != nil {
			return err
		}
		messages[i] = m
	}
	if err := r.place.Queue.Send(ctx, messages...); err != nil {
		return fmt.Errorf("send %d messages: %w", len(messages), err)
	}
	for _, s := range batch {
		r.log.Add(eventlog.Entry{Kind: eventlog.Sent, Key: s.Key, Message: s.ID, Count: s.Copy})
	}
	r.sent = due
	return nil
}

func (r *runner) look(ctx context.Context) (effects int, stats driver.QueueStats, err error) {
	if effects, err = r.place.CountEffects(ctx); err != nil {
		return 0, stats, err
	}
	if stats, err = r.place.Queue.Stats(ctx); err != nil {
		return 0, stats, fmt.Errorf("look at the queue: %w", err)
	}
	if !r.Scenario.Load.Mail || r.place.Outbox == nil {
		return effects, stats, nil
	}
	mails, err := r.place.Outbox.Stats(ctx)
	if err != nil {
		return 0, stats, fmt.Errorf("look at the outbox: %w", err)
	}
	stats.Visible, stats.InFlight, stats.Delayed = stats.Visible+mails.Visible, stats.InFlight+mails.InFlight, stats.Delayed+mails.Delayed
	return effects, stats, nil
}

// gather reads what is left, after every worker is gone.
func (r *runner) gather(ctx context.Context, res Result) (Result, error) {
	var err error
	if res.Effects, err = r.place.Effects(ctx); err != nil {
		return res, err
	}
	if res.Aside, err = r.place.Aside(ctx); err != nil {
		return res, err
	}
	if res.Entries, err = eventlog.Read(r.Dir); err != nil {
		return res, err
	}
	res.Kills, res.Sent = r.fleet.kills, r.load[:r.sent]
	return res, nil
}

// sendReady sends what is due, as soon as every worker that is to run consumes: on a slow machine the first of them would
// have done everything before the second is there, and nothing would have been shown. The run begins then.
func (r *runner) sendReady(ctx context.Context) error {
	if !r.ready {
		for n := range r.fleet.wanted {
			if _, err := os.Stat(worker.ReadyFile(r.Dir, n+1)); err != nil {
				return nil //nolint:nilerr // it is not there yet
			}
		}
		r.ready, r.began = true, time.Now()
	}
	return r.send(ctx)
}

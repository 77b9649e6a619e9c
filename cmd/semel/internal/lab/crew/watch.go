package crew

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
	"github.com/semel-dev/semel/driver"
)

// Watch is what a watched run needs: the load goes on, round after round, until Finish is closed or WatchLimit has
// passed; then everything is settled as in any run.
type Watch struct {
	// Faults are what the person does to the run. Sends must not block: the run receives between two other things.
	Faults <-chan Fault
	// Finish ends the load.
	Finish <-chan struct{}
	// Look gets the status, from the run's own goroutine: it must not block.
	Look func(Status)
}

// WatchLimit is for how long a load goes on at most: what a run leaves behind is read in one piece at its end.
const WatchLimit = 30 * time.Minute

// Fault is what a person does to a run.
type Fault struct {
	Do plan.Action
	// Worker is the worker that it strikes; 0 = any.
	Worker int
	// For is how long it lasts.
	For time.Duration
}

// What a person can do to a run besides plan.Kill, plan.Freeze and plan.Outage: drop the next ack, drop the heartbeats of all
// workers for a while, send the last order again under another message id.
const (
	DropAck        plan.Action = "drop-ack"
	FailHeartbeats plan.Action = "fail-heartbeats"
	Duplicate      plan.Action = "duplicate"
)

// Status is how a run stands.
type Status struct {
	// Sent are the messages that the queue has accepted. The slice must not be changed.
	Sent    []plan.Send
	Effects []place.Effect
	Aside   place.Aside
	Stats   driver.QueueStats
	Kills   int
	// Finishing: the load has ended.
	Finishing bool
}

// live is what the runner keeps for a watched run.
type watch struct {
	round, copies int
	sentUntil     time.Time // until when the load's rate was followed
	looked        time.Time
	took          time.Duration // by the last look
	deaf          time.Time     // until when heartbeats fail; zero: they do not
	finishing     bool
}

// faults is nil in a run that is not watched: nothing is received from it.
func (r *runner) faults() <-chan Fault {
	if r.Watch == nil {
		return nil
	}
	return r.Watch.Faults
}

// due is how many messages may be sent by now in a watched run: at the load's rate, or one that a person can follow, and
// no more than the workers keep up with.
func (r *runner) due(waiting int64, now time.Time) int {
	rate := r.Scenario.Load.Rate
	if rate == 0 {
		rate = min(12, max(0.5, float64(len(r.Plan.Sends))/5))
	}
	n := int(now.Sub(r.watch.sentUntil).Seconds() * rate)
	if n == 0 {
		return r.sent
	}
	r.watch.sentUntil = now
	if waiting > int64(4*r.Scenario.Workers.Count*r.Scenario.Workers.Prefetch) {
		return r.sent
	}
	return min(len(r.load), r.sent+n)
}

// again begins another round unless the run was finished.
func (r *runner) again() {
	select {
	case <-r.Watch.Finish:
		r.watch.finishing = true
	default:
	}
	if time.Since(r.began) > WatchLimit {
		r.watch.finishing = true
	}
	if r.watch.finishing {
		r.load = r.load[:r.sent] // what was not sent is not sent any more
		return
	}
	if r.sent == len(r.load) {
		r.watch.round++
		r.load = append(r.load[:len(r.load):len(r.load)], r.Scenario.Round(r.Plan.Seed, r.watch.round)...)
	}
}

// watched does what a watched run needs at every look.
func (r *runner) watched(ctx context.Context, stats driver.QueueStats, now time.Time) error {
	r.again()
	if !r.watch.deaf.IsZero() && now.After(r.watch.deaf) {
		r.watch.deaf = time.Time{}
		if err := os.Remove(r.path(worker.DeafFile)); err != nil {
			return fmt.Errorf("let heartbeats through again: %w", err)
		}
	}
	// Looking costs more the more there is in the ledger: it takes a tenth of the time at most.
	if now.Sub(r.watch.looked) < max(400*time.Millisecond, 10*r.watch.took) {
		return nil
	}
	r.watch.looked = now
	status := Status{Sent: r.load[:r.sent:r.sent], Stats: stats, Kills: r.fleet.kills, Finishing: r.watch.finishing}
	var err error
	if status.Effects, err = r.place.Effects(ctx); err != nil {
		return err
	}
	if status.Aside, err = r.place.Aside(ctx); err != nil {
		return err
	}
	r.watch.took = time.Since(now)
	r.Watch.Look(status)
	return nil
}

// inject does what the person wants. If there is no process to strike at the moment, it does nothing.
func (r *runner) inject(ctx context.Context, a Fault, now time.Time) error {
	if a.Worker < 1 || a.Worker > r.Scenario.Workers.Count {
		a.Worker = 1 + rand.IntN(r.Scenario.Workers.Count)
	}
	switch a.Do {
	case plan.Kill, plan.Freeze, plan.Outage:
		_, err := r.strikes.strike(ctx, plan.Strike{Do: a.Do, Step: plan.Outside, Worker: a.Worker, For: a.For}, now)
		return err
	case DropAck:
		return r.mark(worker.DropAckFile)
	case FailHeartbeats:
		r.watch.deaf = now.Add(a.For)
		return r.mark(worker.DeafFile)
	case Duplicate:
		if r.sent == 0 {
			return nil
		}
		r.watch.copies++
		one := r.load[r.sent-1]
		one.ID, one.Copy, one.HangMS = fmt.Sprintf("%s-copy-%d", one.ID, r.watch.copies), 2, 0
		rest := append([]plan.Send{one}, r.load[r.sent:]...)
		r.load = append(r.load[:r.sent:r.sent], rest...)
	}
	return nil
}

// mark makes a file that the workers look for.
func (r *runner) mark(name string) error {
	if err := os.WriteFile(r.path(name), nil, 0o600); err != nil {
		return fmt.Errorf("leave %s for the workers: %w", name, err)
	}
	r.log.Add(eventlog.Entry{Kind: eventlog.Fault, Action: name})
	return nil
}

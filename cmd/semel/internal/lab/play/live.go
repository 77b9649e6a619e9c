package play

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/rig"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/trail"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
	"github.com/semel-dev/semel/driver"
)

// Live is a run that a person watches: the load goes on, round after round, until Finish is closed or LiveLimit has
// passed; then everything is settled as in any run.
type Live struct {
	// Acts are what the person does to the run. Whoever sends must not wait: the run looks between two other things.
	Acts <-chan Act
	// Finish ends the load.
	Finish <-chan struct{}
	// Look is told how things stand, from the run's own goroutine: it must not wait.
	Look func(Sight)
}

// LiveLimit is for how long a load goes on at most: what a run leaves behind is read in one piece at its end.
const LiveLimit = 30 * time.Minute

// Act is one thing that a person does to a run.
type Act struct {
	Do ActName
	// Worker is whom it strikes; 0 = any.
	Worker int
	// For is how long it lasts.
	For time.Duration
}

// ActName names what a person can do.
type ActName string

// The acts. DropAck swallows the next ack, DeafHeartbeats the heartbeats of all workers for a while; Duplicate sends the
// last order again, under another message id.
const (
	ActKill        ActName = "kill"
	ActFreeze      ActName = "freeze"
	ActDropAck     ActName = "drop-ack"
	DeafHeartbeats ActName = "fail-heartbeats"
	ActOutage      ActName = "pause-store"
	ActDuplicate   ActName = "duplicate"
)

// Sight is how a run stands.
type Sight struct {
	// Sent are the messages that the queue has accepted. The slice must not be changed.
	Sent    []plan.Send
	Effects []rig.Effect
	Aside   rig.Aside
	Stats   driver.QueueStats
	Kills   int
	// Finishing: the load has ended.
	Finishing bool
}

// live is what the runner keeps for a watched run.
type live struct {
	round, copies int
	paced         time.Time // until when the load's pace was followed
	looked        time.Time
	took          time.Duration // by the last look
	deaf          time.Time     // until when heartbeats fail; zero: they do not
	finishing     bool
}

// acts never has anything to say in a run that nobody watches.
func (r *runner) acts() <-chan Act {
	if r.Live == nil {
		return nil
	}
	return r.Live.Acts
}

// due is how many messages may be sent by now in a watched run: at the load's pace, or one that a person can follow, and
// no more than the workers keep up with.
func (r *runner) due(waiting int64, now time.Time) int {
	rate := r.Scenario.Load.Rate
	if rate == 0 {
		rate = min(12, max(0.5, float64(len(r.Plan.Sends))/5))
	}
	n := int(now.Sub(r.live.paced).Seconds() * rate)
	if n == 0 {
		return r.sent
	}
	r.live.paced = now
	if waiting > int64(4*r.Scenario.Workers.Count*r.Scenario.Workers.Prefetch) {
		return r.sent
	}
	return min(len(r.load), r.sent+n)
}

// again begins another round, as long as nobody has finished the run.
func (r *runner) again() {
	select {
	case <-r.Live.Finish:
		r.live.finishing = true
	default:
	}
	if time.Since(r.began) > LiveLimit {
		r.live.finishing = true
	}
	if r.live.finishing {
		r.load = r.load[:r.sent] // what was not sent is not sent any more
		return
	}
	if r.sent == len(r.load) {
		r.live.round++
		r.load = append(r.load[:len(r.load):len(r.load)], r.Scenario.Round(r.Plan.Seed, r.live.round)...)
	}
}

// watched does what a watched run needs at every look.
func (r *runner) watched(ctx context.Context, stats driver.QueueStats, now time.Time) error {
	r.again()
	if !r.live.deaf.IsZero() && now.After(r.live.deaf) {
		r.live.deaf = time.Time{}
		if err := os.Remove(r.path(worker.DeafFile)); err != nil {
			return fmt.Errorf("let heartbeats through again: %w", err)
		}
	}
	// Looking costs more the more there is in the ledger: it takes a tenth of the time at most.
	if now.Sub(r.live.looked) < max(400*time.Millisecond, 10*r.live.took) {
		return nil
	}
	r.live.looked = now
	sight := Sight{Sent: r.load[:r.sent:r.sent], Stats: stats, Kills: r.fleet.kills, Finishing: r.live.finishing}
	var err error
	if sight.Effects, err = r.rig.Effects(ctx); err != nil {
		return err
	}
	if sight.Aside, err = r.rig.Aside(ctx); err != nil {
		return err
	}
	r.live.took = time.Since(now)
	r.Live.Look(sight)
	return nil
}

// act does what the person wants. There may be no process to strike at the moment: then nothing happens.
func (r *runner) act(ctx context.Context, a Act, now time.Time) error {
	if a.Worker < 1 || a.Worker > r.Scenario.Workers.Count {
		a.Worker = 1 + rand.IntN(r.Scenario.Workers.Count)
	}
	k := plan.Strike{Step: plan.Outside, Worker: a.Worker, For: a.For}
	switch a.Do {
	case ActKill:
		r.fleet.kill(a.Worker, now)
	case ActFreeze:
		k.Do = plan.Freeze
		_, err := r.strikes.strike(ctx, k, now)
		return err
	case ActOutage:
		k.Do = plan.Outage
		_, err := r.strikes.strike(ctx, k, now)
		return err
	case ActDropAck:
		return r.mark(worker.DropAckFile)
	case DeafHeartbeats:
		r.live.deaf = now.Add(a.For)
		return r.mark(worker.DeafFile)
	case ActDuplicate:
		if r.sent == 0 {
			return nil
		}
		r.live.copies++
		one := r.load[r.sent-1]
		one.ID, one.Copy, one.HangMS = fmt.Sprintf("%s-copy-%d", one.ID, r.live.copies), 2, 0
		rest := append([]plan.Send{one}, r.load[r.sent:]...)
		r.load = append(r.load[:r.sent:r.sent], rest...)
	}
	return nil
}

// mark makes a file that the workers look for.
func (r *runner) mark(name string) error {
	if err := os.WriteFile(r.path(name), nil, 0o600); err != nil {
		return fmt.Errorf("tell the workers of %s: %w", name, err)
	}
	r.log.Add(trail.Entry{Kind: "act", Action: name})
	return nil
}

// Package campaign sends messages, a share of them duplicates, to worker processes of several modes that share one record
// table, while it kills and freezes workers and takes servers down in the ways in which servers go down. Then it lets
// everything recover, and counts effects in a ledger that has no constraint of its own. It starts its own servers.
//
//	go test -count=1 -v -timeout 0 ./campaign -run TestCampaign -queue rabbitmq -messages 200000 -kills 50 -freezes 5 -restarts 10 -seed 1
package campaign

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

var (
	queue    = flag.String("queue", "", "the queue of TestCampaign (default two that are drawn; in nightly runs each)")
	messages = flag.Int("messages", 4000, "messages of TestCampaign, duplicates included")
	kills    = flag.Int("kills", 6, "workers that it kills with SIGKILL")
	freezes  = flag.Int("freezes", 1, "workers that it stops with SIGSTOP for longer than their leases")
	restarts = flag.Int("restarts", 2, "restarts of the servers: stops and kills in turn")
	visible  = flag.Duration("visibility", 0, "how long a worker owns a message without a heartbeat (default by the queue)")
	seed     = flag.Uint64("seed", 7, "seed of messages and faults")
)

func TestMain(m *testing.M) {
	kfake.MainIfBroker()
	crew.MainIfWorker()
	os.Exit(m.Run())
}

const (
	workers    = 3
	duplicates = 0.2 // share of the messages
	sendBatch  = 500 // messages of one Send
	// stuck is how long a campaign waits without progress before it gives up.
	stuck = 5 * time.Minute
)

// campaign is one run.
type campaign struct {
	*testing.T
	seed                                        uint64
	messages, kills, freezes, restarts, backlog int

	place
	modes      []crew.Mode // of the workers, in turn
	visibility time.Duration

	victims []victim
	task    crew.Task
	open    *crew.Opened // the sender's
	fleet   *fleet
	sent    atomic.Int64

	// problems are workers that ended by themselves or did not drain, and messages that do not move.
	problems []string
	// sendsFailed counts sends that are repeated: each may have made duplicates of a whole batch.
	sendsFailed, killed, frozen, stops, serverKills int
}

// TestCampaign is a campaign with every kind of fault on two queues that are drawn, as large as the flags say. In nightly runs it
// is large, and on every queue.
func TestCampaign(t *testing.T) {
	if semeltest.Nightly() {
		*messages, *kills, *freezes, *restarts = 200_000, 50, 5, 10
	}
	if _, ok := places[*queue]; !ok && *queue != "" {
		t.Fatalf("-queue is %q, must be one of %q", *queue, slices.Sorted(maps.Keys(places)))
	}
	names := slices.Sorted(maps.Keys(places))
	switch {
	case *queue != "":
		names = []string{*queue}
	case !semeltest.Nightly():
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { everyFault(t, places[name]) })
	}
}

func everyFault(t *testing.T, p place) {
	c := &campaign{
		T: t, seed: *seed, messages: *messages, kills: *kills, freezes: *freezes, restarts: *restarts, backlog: min(10_000, *messages/5),
		place: p, modes: p.modes, visibility: cmp.Or(*visible, p.visible, 5*time.Second),
	}
	v := c.run()
	if !v.Held() || len(c.problems) > 0 {
		t.Errorf("not held with seed %d: %v; problems %q", c.seed, v, c.problems)
	}
	if c.killed != c.kills || c.stops+c.serverKills != c.restarts || c.freezes > 0 && c.frozen == 0 {
		t.Errorf("%d kills, %d freezes, %d stops, %d kills of servers: not what was asked for", c.killed, c.frozen, c.stops, c.serverKills)
	}
	if v.Keys < c.messages*15/20 || v.Keys > c.messages*17/20 {
		t.Errorf("%d keys of %d messages with 20 %% duplicates", v.Keys, c.messages)
	}
}

// TestPlantedInboxes runs the same on inboxes with a mistake: a verdict that finds nothing there proves nothing.
func TestPlantedInboxes(t *testing.T) {
	for mode, failed := range map[crew.Mode]func(crew.Verdict) bool{
		crew.MarkLast:  func(v crew.Verdict) bool { return v.Doubled > 0 },
		crew.MarkFirst: func(v crew.Verdict) bool { return v.Lost > 0 },
	} {
		t.Run(string(mode), func(t *testing.T) {
			c := &campaign{
				T: t, seed: 1, messages: 6000, kills: 8, restarts: 1, backlog: 1000, place: onTables, modes: []crew.Mode{mode},
				visibility: 500 * time.Millisecond,
			}
			if v := c.run(); v.Held() || !failed(v) {
				t.Errorf("held %v: the planted mistake was not found: %v", v.Held(), v)
			}
		})
	}
}

func TestSeedRepeatsMessagesAndFaults(t *testing.T) {
	a, b, other := crew.NewMessages(3, 0.2), crew.NewMessages(3, 0.2), crew.NewMessages(4, 0.2)
	x, y, z := a.Next(1000), b.Next(1000), other.Next(1000)
	same := 0
	for i := range x {
		if string(x[i].Body) != string(y[i].Body) || x[i].ID != y[i].ID {
			t.Fatalf("message %d differs under the same seed", i)
		}
		if string(x[i].Body) == string(z[i].Body) {
			same++
		}
	}
	if same == len(x) {
		t.Error("another seed makes the same messages")
	}
	if a.Keys < 750 || a.Keys > 850 {
		t.Errorf("%d keys of 1000 messages with 20 %% duplicates", a.Keys)
	}
}

// run has three parts: faults while messages are sent, the drain, the verdict.
func (c *campaign) run() crew.Verdict {
	c.Helper()
	c.prepare()
	c.fleet = &fleet{campaign: c}
	c.Cleanup(c.fleet.killAll)
	if err := c.fleet.start(); err != nil {
		c.Fatal(err)
	}
	begin := time.Now()
	faults := make(chan error, 1)
	sending, abort := context.WithCancelCause(c.Context())
	defer abort(nil)
	go func() {
		err := c.faults(sending)
		if err != nil {
			abort(err)
		}
		faults <- err
	}()
	keys, err := c.send(sending)
	if err != nil {
		abort(err)
	}
	if err := errors.Join(<-faults, err); err != nil {
		c.Fatalf("campaign with seed %d: %v", c.seed, err)
	}
	left, drain := c.finish(keys)
	took := time.Since(begin).Seconds()
	v, err := c.open.Judge(c.Context(), c.task, keys)
	if err != nil {
		c.Fatal(err)
	}
	takenOver, fenced := c.fleet.sum()
	c.Logf("%v\n%d messages in %.1f s (%.0f/s), %d workers %v; %d killed, %d frozen past their leases, servers stopped %d "+
		"times, killed %d times, %d sends repeated\n%d messages were left when the faults ended, and done %.1f s later; %d runs "+
		"taken over, %d attempts fenced", v, c.messages, took, float64(c.messages)/took, workers, c.modes, c.killed, c.frozen,
		c.stops, c.serverKills, c.sendsFailed, left, drain.Seconds(), takenOver, fenced)
	return v
}

// prepare starts the servers and makes tables and queue.
func (c *campaign) prepare() {
	c.Helper()
	for _, name := range c.needs {
		server.Need(c, name)
	}
	for i, start := range c.servers {
		s, err := start(c.Context())
		if err != nil {
			server.LeaveOut(c, c.needs[min(i, len(c.needs)-1)], err.Error())
		}
		c.Cleanup(func() { _ = s.Close() })
		c.victims = append(c.victims, s)
	}
	c.task = crew.Task{
		Kind: c.kind, URL: c.victims[0].URL(), At: c.victims[len(c.victims)-1].URL(), Queue: crew.Queue, Mode: c.modes[0], Visibility: c.visibility,
		MaxTx: c.visibility, LockWait: 200 * time.Millisecond, Concurrency: 64, Committers: 2, Batch: 100,
	}
	if c.steady {
		c.victims = c.victims[1:]
	}
	if err := c.task.Prepare(c.Context()); err != nil {
		c.Fatal(err)
	}
	var err error
	if c.open, err = c.task.Open(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = c.open.Close() })
}

// send sends all messages, never further ahead of the workers than the backlog, and returns how many keys they have.
func (c *campaign) send(ctx context.Context) (keys int, err error) {
	q, ok := driver.As[driver.Sender](c.open.Queue)
	if !ok {
		return 0, fmt.Errorf("nothing can be sent to %T", c.open.Queue)
	}
	ms := crew.NewMessages(c.seed, duplicates)
	room := c.backlog
	for sent := 0; sent < c.messages; {
		if room <= 0 {
			if room, err = c.room(ctx); err != nil {
				return 0, err
			}
			continue
		}
		n := min(sendBatch, c.messages-sent)
		failed, err := crew.Send(ctx, q, ms.Next(n))
		if err != nil {
			return 0, fmt.Errorf("send: %w", errors.Join(err, context.Cause(ctx)))
		}
		c.sendsFailed += failed
		sent += n
		room -= n
		c.sent.Store(int64(sent))
	}
	return ms.Keys, nil
}

// room waits until the workers have made progress and returns how far the sender may go.
func (c *campaign) room(ctx context.Context) (int, error) {
	for deadline := time.Now().Add(stuck); ; {
		left, err := c.open.Left(ctx) // fails while the server is down
		if room := c.backlog - left; err == nil && room > 0 {
			return room, nil
		}
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case time.Now().After(deadline):
			return 0, fmt.Errorf("the workers are stuck: %d messages are in the queue and none was done in %v; they say %s; problems %q: %w",
				left, stuck, c.fleet.reports(), c.fleet.stop(), err)
		}
		crew.Sleep(ctx, 20*time.Millisecond)
	}
}

// finish drains the queue and stops the workers, and returns how many messages were left, and how long it took. A worker that
// stops returns what it holds, which RabbitMQ shows only then: others have to drain that.
func (c *campaign) finish(keys int) (first int, took time.Duration) {
	c.Helper()
	begin := time.Now()
	first = c.drain(keys)
	for {
		took = time.Since(begin)
		c.problems = append(c.problems, c.fleet.stop()...)
		if left, err := c.open.Left(c.Context()); err != nil || left == 0 || len(c.problems) > 0 {
			return first, took
		}
		if err := c.fleet.start(); err != nil {
			c.Fatal(err)
		}
		c.drain(keys)
	}
}

// drain waits until the queue is empty and the effects are there, and returns how many messages were left. After a while
// without progress it gives up: the verdict counts what is left.
func (c *campaign) drain(keys int) (first int) {
	for moved, last := time.Now(), -1; ; crew.Sleep(c.Context(), 20*time.Millisecond) {
		left, err := c.open.Left(c.Context())
		if err == nil && left == 0 && c.kind == "rabbitmq" { // it does not show what workers hold
			left, err = c.open.Missing(c.Context(), keys)
		}
		if err != nil {
			c.Logf("count the messages: %v", err)
			left = last
		}
		if last < 0 {
			first = left
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if left == 0 {
			return first
		}
		if time.Since(moved) > stuck || c.Context().Err() != nil {
			c.problems = append(c.problems, fmt.Sprintf("%d messages do not move; the workers say %s", left, c.fleet.reports()))
			return first
		}
	}
}

// fault is one thing that goes wrong.
type fault uint8

const (
	kill fault = iota
	freeze
	stopServer
	killServer
)

// schedule is the faults in the order of a seed. Each is due when its share of the messages is sent, so that a slow
// machine suffers as many as a fast one.
func (c *campaign) schedule(rng *rand.Rand) []fault {
	var out []fault
	for range c.kills {
		out = append(out, kill)
	}
	for range c.freezes {
		out = append(out, freeze)
	}
	for i := range c.restarts {
		out = append(out, stopServer+fault(i%2))
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// faults commits all faults and ends when their consequences have: every worker runs, the server too.
func (c *campaign) faults(ctx context.Context) (err error) {
	rng := rand.New(rand.NewPCG(c.seed, 0x6661756c74))
	all := c.schedule(rng)
	thawed := make(chan error, len(all))
	defer func() {
		for range c.frozen {
			err = errors.Join(err, <-thawed)
		}
	}()
	for i, f := range all {
		for due := int64(c.messages) * int64(i+1) / int64(len(all)+1); c.sent.Load() < due; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			crew.Sleep(ctx, time.Millisecond)
		}
		// Somewhere in the work, not at the start of a batch of the sender.
		crew.Sleep(ctx, upTo(rng, 30*time.Millisecond))
		if err := c.fleet.replaceEnded(); err != nil {
			return err
		}
		switch f {
		case kill:
			err = c.fleet.replace(rng)
			c.killed++
		case freeze:
			var ok bool
			if ok, err = c.fleet.freeze(ctx, rng, thawed); ok {
				c.frozen++
			}
		default:
			err = c.restart(ctx, f, upTo(rng, 500*time.Millisecond))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restart takes a server down, keeps it down for a while, and waits for its recovery. The servers take turns.
func (c *campaign) restart(ctx context.Context, f fault, down time.Duration) (err error) {
	s := c.victims[(c.stops+c.serverKills)%len(c.victims)]
	if f == stopServer {
		c.stops++
		err = s.Stop(s.stop)
	} else {
		c.serverKills++
		err = s.Kill()
	}
	if err != nil {
		return err
	}
	crew.Sleep(ctx, down)
	if err := s.Start(ctx); err != nil {
		return fmt.Errorf("start the server again: %w", err)
	}
	return nil
}

// upTo is a random time below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

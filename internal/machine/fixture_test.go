package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// fixture replaces the shell: it keeps the machine's actions until a test completes them.
type fixture struct {
	t     *testing.T
	cfg   machine.Config
	m     *machine.Machine
	now   time.Duration
	open  []machine.Action // not completed yet
	nonce byte
	token uint64
}

const (
	lease   = 9 * time.Second
	visible = 10 * time.Second
	guard   = time.Second
)

func newFixture(t *testing.T, change func(*machine.Config)) *fixture {
	r := &fixture{t: t, now: time.Second}
	r.cfg = machine.Config{
		Concurrency: 4, Batch: 10, Lanes: 1, InFlight: 12, Lease: lease, Visibility: visible, Guard: guard,
		MaxRuntime: time.Minute, Grace: 5 * time.Second, HardStop: time.Second, MaxAttempts: 3,
		BackoffMin: time.Second, BackoffMax: 10 * time.Second, Keep: time.Hour, ResultMax: 8,
		Extends: true, Orders: true, Counts: true,
		Nonce: func() driver.Nonce { r.nonce++; return driver.Nonce{r.nonce} },
	}
	if change != nil {
		change(&r.cfg)
	}
	r.m = machine.New(r.cfg)
	r.step(machine.Event{})
	return r
}

func (r *fixture) step(ev machine.Event) {
	r.t.Helper()
	r.open = r.m.Step(r.now, &ev, r.open)
	if next := r.m.Next(); next <= r.now {
		r.t.Fatalf("Next names %v, which is not after %v", next, r.now)
	}
}

// pass lets time pass, waking the machine when it asks for it.
func (r *fixture) pass(d time.Duration) {
	r.t.Helper()
	end := r.now + d
	for n := 0; r.m.Next() <= end; n++ {
		if n > 10_000 {
			r.t.Fatal("the machine asks to be woken up forever")
		}
		r.now = r.m.Next()
		r.step(machine.Event{})
	}
	r.now = end
	r.step(machine.Event{})
}

// has counts the open actions of a kind.
func (r *fixture) has(k machine.ActionKind) (n int) {
	for i := range r.open {
		if r.open[i].Kind == k {
			n++
		}
	}
	return n
}

// take removes the first open action of a kind; the test fails when there is none.
func (r *fixture) take(k machine.ActionKind) machine.Action {
	r.t.Helper()
	for i, a := range r.open {
		if a.Kind == k {
			r.open = append(r.open[:i:i], r.open[i+1:]...)
			return a
		}
	}
	r.t.Fatalf("no action of kind %d among %d open ones", k, len(r.open))
	return machine.Action{}
}

func (r *fixture) none(k machine.ActionKind, why string) {
	r.t.Helper()
	if n := r.has(k); n > 0 {
		r.t.Fatalf("%d actions of kind %d: %s", n, k, why)
	}
}

func message(id, key string) machine.Arrival {
	a := machine.Arrival{Key: driver.Key{Consumer: "c", Raw: key}}
	a.ID, a.Count, a.Visible, a.Receipt = id, 1, visible, id
	return a
}

func grouped(id, key, group string) machine.Arrival {
	a := message(id, key)
	a.Group = group
	return a
}

// warm handles one message in no time. From then on deliveries are fetched ahead of the handlers.
func (r *fixture) warm() {
	r.t.Helper()
	r.begin("warm")
	r.ran("warm", machine.Result{})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
}

// receive completes the open receive.
func (r *fixture) receive(as ...machine.Arrival) {
	r.t.Helper()
	r.take(machine.ActionReceive)
	r.step(machine.Event{Kind: machine.Received, Arrivals: as, Sent: r.now})
}

// acquired is the grant of a claim that succeeds.
func (r *fixture) acquired(c driver.Claim) driver.Grant {
	r.token++
	return driver.Grant{Verdict: driver.Acquired, Attempt: 1, Takeover: c.Takeover,
		Hold: driver.Hold{Key: c.Key, Generation: 1, Token: r.token, Nonce: c.Nonce}}
}

// claim completes the open claim flush. change may alter the grant of a key.
func (r *fixture) claim(change func(key string, g *driver.Grant)) machine.Action {
	r.t.Helper()
	a := r.take(machine.ActionClaim)
	grants := make([]driver.Grant, len(a.Claims))
	for i, c := range a.Claims {
		grants[i] = r.acquired(c)
		if change != nil {
			change(c.Key.Raw, &grants[i])
		}
	}
	r.step(machine.Event{Kind: machine.Claimed, Lane: a.Lane, Items: a.Items, Grants: grants, Sent: r.now})
	return a
}

// ran completes the open run of a key.
func (r *fixture) ran(key string, res machine.Result) machine.Action {
	r.t.Helper()
	for i, a := range r.open {
		if a.Kind == machine.ActionRun && a.Item.Key.Raw == key {
			r.open = append(r.open[:i:i], r.open[i+1:]...)
			r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Result: res})
			return a
		}
	}
	r.t.Fatalf("key %s does not run", key)
	return machine.Action{}
}

// finish completes the open finish flush with one outcome for all.
func (r *fixture) finish(o driver.Outcome) machine.Action {
	r.t.Helper()
	a := r.take(machine.ActionFinish)
	out := make([]driver.Outcome, len(a.Works))
	for i := range out {
		out[i] = o
	}
	r.step(machine.Event{Kind: machine.Finished, Lane: a.Lane, Items: a.Items, Outcomes: out})
	return a
}

func (r *fixture) settle(o driver.Outcome) machine.Action {
	r.t.Helper()
	a := r.take(machine.ActionSettle)
	out := make([]driver.Outcome, len(a.Settlements))
	for i := range out {
		out[i] = o
	}
	r.step(machine.Event{Kind: machine.Settled, Items: a.Items, Outcomes: out})
	return a
}

// begin receives one message and acquires its key: its handler runs.
func (r *fixture) begin(key string) {
	r.t.Helper()
	r.receive(message("m-"+key, key))
	r.claim(nil)
}

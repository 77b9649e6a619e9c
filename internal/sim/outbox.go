package sim

import (
	"context"
	"log/slog"
	"time"

	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/outbox"
)

// This file and the others named outbox are a simulation of their own: relays (package outbox, the very code that runs in
// production) carry what transactions emitted from a modelled outbox to a modelled sender (protocol section 8). Each
// relay is a coroutine that rests while the world does what it asked for, so that one seed is one history here too.

const (
	relayVisible  = 3 * time.Second
	relaySettleBy = 20 * time.Minute // after the last fault: I17
	maxRelayTurns = 20_000           // a seed takes some hundred
)

// OutboxStats counts what was simulated of outboxes.
type OutboxStats struct {
	// Schedules are seeds with random faults, CrashPoints those with one fault at one operation.
	Schedules   int `json:"schedules"`
	CrashPoints int `json:"crash_points"`
	// Emitted rows committed; Published ones were accepted for the first time, Copies again, Parked became dead letters.
	Emitted   int `json:"emitted"`
	Published int `json:"published"`
	Copies    int `json:"copies"`
	Parked    int `json:"parked"`
	// Faults that happened.
	Crashes int `json:"crashes"`
	Stalls  int `json:"stalls"`
	Lost    int `json:"responses_lost"`
	Late    int `json:"requests_late"`
}

func (s *OutboxStats) add(o *OutboxStats) {
	s.Schedules += o.Schedules
	s.CrashPoints += o.CrashPoints
	s.Emitted += o.Emitted
	s.Published += o.Published
	s.Copies += o.Copies
	s.Parked += o.Parked
	s.Crashes += o.Crashes
	s.Stalls += o.Stalls
	s.Lost += o.Lost
	s.Late += o.Late
}

// relaySimulation is one of an outbox. It is reused for the next seed.
type relaySimulation struct {
	virtual.World
	turns virtual.Events[func()]
	mut   relayMutant

	sc      relayScenario
	rows    []*row
	order   []*row // committed rows by position
	hands   int
	cursor  int // of the mutant that keeps one
	relays  []*relay
	waiting []*relayCall // receives that found nothing
	late    int          // requests that arrive after their sender gave up
	trickle int          // rows that were added so that something goes through

	stats OutboxStats
}

// on lets something happen later.
func (w *relaySimulation) on(at time.Duration, do func()) { w.turns.Add(max(at, w.Now), do) }

// Simulate is virtual.Simulator's.
func (w *relaySimulation) Simulate(s virtual.Schedule, t *virtual.Trace) (int, *virtual.Violation) {
	w.turns.Reset()
	*w = relaySimulation{
		World: w.World, turns: w.turns, mut: relayMutant(s.Mistake), stats: w.stats, waiting: w.waiting[:0],
	}
	w.Begin(s, 0x6f7574626f78, t)
	w.sc.draw(w)
	w.emit()
	for i := range w.sc.relays {
		w.start(i)
	}
	for n := 0; w.Broken == nil && !w.done(); n++ {
		if n > maxRelayTurns || w.Now > w.sc.quiet+relaySettleBy || w.turns.Len() == 0 {
			w.unsettled()
			break
		}
		at, do := w.turns.Next()
		w.Now = at
		do()
		w.offer()
	}
	for _, p := range w.relays {
		p.die()
	}
	if w.Broken == nil {
		w.finally()
	}
	w.count()
	return w.Operations, w.Broken
}

// start starts a relay process.
func (w *relaySimulation) start(id int) {
	p := &relay{w: w, id: id}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	r, err := outbox.New(outbox.Config{
		From: relayQueue{p}, To: relaySender{p}, Batch: w.sc.batch, MaxAttempts: w.sc.maxAttempts,
		RetryMin: 50 * time.Millisecond, RetryMax: 800 * time.Millisecond, SendTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err) // the configuration is ours
	}
	for len(w.relays) <= id {
		w.relays = append(w.relays, nil)
	}
	w.relays[id] = p
	p.main = p.coroutine(func() { _ = r.Run(virtual.With(ctx, relayTime{p})) })
	w.Log(-1, "relay %d starts", id)
	w.on(w.Now, func() {
		if !p.dead {
			p.resume(p.main)
		}
	})
}

// relayTime is the world's time, for one relay.
type relayTime struct{ p *relay }

func (t relayTime) Now() time.Time { return t.p.w.Time() }

func (t relayTime) Pause(_ context.Context, d time.Duration) {
	c := &relayCall{p: t.p, to: t.p.cur, pause: true}
	t.p.pausing = c
	t.p.w.on(t.p.w.Now+d, func() { t.p.w.respond(c) })
	t.p.await(c)
}

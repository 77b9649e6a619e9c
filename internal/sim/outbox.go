package sim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/outbox"
)

// This file and the others named outbox are a world of their own: relays (package outbox, the very code that runs in
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

// relayWorld is one simulation of an outbox; it is used again for the next.
type relayWorld struct {
	pcg  *rand.PCG
	rng  *rand.Rand
	seed uint64
	mut  relayMutant
	now  time.Duration
	at   int // the operation of a planted fault, -1 for none
	kind relayFault

	turns   []turn // a heap
	turnSeq int

	sc      relayScenario
	rows    []*row
	order   []*row // committed rows by position
	hands   int
	cursor  int // of the mutant that keeps one
	relays  []*relay
	waiting []*relayCall // receives that found nothing
	late    int          // requests that arrive after their sender gave up
	ops     int
	trickle int // rows that were added so that something goes through

	stats OutboxStats
	vio   *Violation
	tr    *trace
}

func newRelayWorld() *relayWorld {
	pcg := rand.NewPCG(0, 0)
	return &relayWorld{pcg: pcg, rng: rand.New(pcg)}
}

// turn is something that happens at a time.
type turn struct {
	at  time.Duration
	seq int
	do  func()
}

// on lets something happen later.
func (w *relayWorld) on(at time.Duration, do func()) {
	w.turnSeq++
	w.turns = append(w.turns, turn{max(at, w.now), w.turnSeq, do})
	for i := len(w.turns) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.before(i, up) {
			break
		}
		w.turns[i], w.turns[up] = w.turns[up], w.turns[i]
		i = up
	}
}

func (w *relayWorld) before(i, j int) bool {
	a, b := &w.turns[i], &w.turns[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// pop takes the next turn.
func (w *relayWorld) pop() turn {
	first, last := w.turns[0], len(w.turns)-1
	w.turns[0] = w.turns[last]
	w.turns[last] = turn{}
	w.turns = w.turns[:last]
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			break
		}
		if next+1 < last && w.before(next+1, next) {
			next++
		}
		if !w.before(next, i) {
			break
		}
		w.turns[i], w.turns[next] = w.turns[next], w.turns[i]
		i = next
	}
	return first
}

func (w *relayWorld) n(n int) int              { return w.rng.IntN(n) }
func (w *relayWorld) chance(perMille int) bool { return w.rng.IntN(1000) < perMille }

// between draws a time.
func (w *relayWorld) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)+1))
}

// simulate runs one seed. faultless leaves random faults out. at plants one of a kind at that operation.
func (w *relayWorld) simulate(seed uint64, mut relayMutant, faultless bool, at int, kind relayFault) *Violation {
	w.pcg.Seed(seed, 0x6f7574626f78)
	*w = relayWorld{
		pcg: w.pcg, rng: w.rng, seed: seed, mut: mut, at: at, kind: kind, tr: w.tr, turns: w.turns[:0],
		stats: w.stats, waiting: w.waiting[:0],
	}
	w.sc.draw(w, faultless)
	w.emit()
	for i := range w.sc.relays {
		w.start(i)
	}
	for n := 0; w.vio == nil && !w.done(); n++ {
		if n > maxRelayTurns || w.now > w.sc.quiet+relaySettleBy || len(w.turns) == 0 {
			w.unsettled()
			break
		}
		t := w.pop()
		w.now = t.at
		t.do()
		w.offer()
	}
	for _, p := range w.relays {
		p.die()
	}
	if w.vio == nil {
		w.finally()
	}
	w.count()
	return w.vio
}

// start starts a relay process.
func (w *relayWorld) start(id int) {
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
	w.log("relay %d starts", id)
	w.on(w.now, func() {
		if !p.dead {
			p.resume(p.main)
		}
	})
}

// relayTime is the world's time, for one relay.
type relayTime struct{ p *relay }

func (t relayTime) Now() time.Time { return epochOfRelays.Add(t.p.w.now) }

func (t relayTime) Pause(_ context.Context, d time.Duration) {
	c := &relayCall{p: t.p, to: t.p.cur, pause: true}
	t.p.pausing = c
	t.p.w.on(t.p.w.now+d, func() { t.p.w.respond(c) })
	t.p.await(c)
}

// epochOfRelays is when every simulation of an outbox begins.
var epochOfRelays = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

package keymigration_test

import (
	"context"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
	"github.com/semel-dev/semel/memory"
)

const (
	modelLease = 10 * time.Second
	modelKeep  = time.Hour
)

// fleet is what a worker knows of keys.
type fleet int

const (
	before fleet = iota // the previous recipe alone
	during              // both
	after               // the new one alone
)

// manner is how a worker has its effect.
type manner int

const (
	outside   manner = iota // mode A: somewhere else, before the record is written
	collected               // mode A2: in the write of the record
	inTx                    // mode B: in the transaction that claims
)

func (m manner) String() string { return [...]string{"outside", "collected", "in the transaction"}[m] }

// message is one message. Its effect must happen once.
type message struct {
	previous, key driver.Key
	outside       int  // effects outside
	open          int  // of these, effects of runs whose end is not known to be recorded
	doubt         bool // the latest of these is not recorded, and may not be
	acked         bool
}

// simulation has old and new workers on one store, and everything that can go wrong.
type simulation struct {
	virtual.World
	db       *memory.DB
	wire     *wire
	manner   manner
	policy   driver.Takeover
	messages []*message
	workers  []*worker
	wrap     func(txStore) txStore // the store of workers that know both recipes
	quiet    bool                  // no worker crashes, and no lease ends
	harm     bool                  // only real harm counts, not what could cause it
}

// worker is one process. A crash makes it forget everything.
type worker struct {
	w      *simulation
	fleet  fleet
	store  txStore
	step   func() // nil: idle
	on     *message
	claim  driver.Claim
	hold   driver.Hold
	until  time.Time // its lease, as it believes
	tx     driver.Tx
	ran    bool
	finish driver.Finish
}

func newSimulation(seed uint64, m manner, wrap func(txStore) txStore) *simulation {
	w := &simulation{manner: m, wrap: wrap, quiet: seed%3 == 0}
	w.Begin(virtual.Random(seed), 42, nil)
	w.policy = []driver.Takeover{driver.Resume, driver.Probe}[seed%2]
	w.db = memory.Open(memory.WithClock(w.Time))
	w.wire = &wire{Store: w.db.Store(), world: &w.World}
	return w
}

// advance lets time pass, for workers and store.
func (w *simulation) advance(d time.Duration) {
	w.Now += d
	w.db.Wake()
}

func (w *simulation) wrong(format string, args ...any) { w.Fail("a migration", -1, format, args...) }

func (w *simulation) add(n int) {
	for range n {
		id := strconv.Itoa(len(w.messages))
		w.messages = append(w.messages, &message{
			previous: driver.Key{Consumer: "orders-v1", Raw: "previous-" + id}, key: driver.Key{Consumer: "orders", Raw: "new-" + id},
		})
	}
}

// staff replaces the workers. The previous ones crash.
func (w *simulation) staff(fleets ...fleet) {
	for _, x := range w.workers {
		x.crash()
	}
	w.workers = nil
	for _, f := range fleets {
		x := &worker{w: w, fleet: f, store: w.wire}
		if f == during {
			x.store = w.wrap(w.wire)
		}
		w.workers = append(w.workers, x)
	}
}

// run lets things happen in any order.
func (w *simulation) run(steps int) {
	w.wire.bad = !w.quiet
	for range steps {
		x := w.workers[w.IntN(len(w.workers))]
		switch n := w.IntN(100); {
		case w.quiet || n < 82:
			x.next()
		case n < 88:
			w.wire.arrive()
		case n < 92:
			x.crash()
		case n < 98:
			w.advance(time.Duration(1+w.IntN(3)) * time.Second)
		default:
			w.advance(modelLease + time.Second)
		}
		w.check()
	}
}

// settle is a horizon: nothing goes wrong anymore, and every message is redelivered until all workers ack it.
func (w *simulation) settle() {
	w.wire.bad = false
	for _, x := range w.workers {
		x.crash()
	}
	for len(w.wire.late) > 0 {
		w.wire.arrive()
	}
	for _, a := range w.messages {
		a.acked = false
		for n := 0; !a.acked && n < 40; n++ {
			w.advance(modelLease + time.Second)
			x := w.workers[n%len(w.workers)]
			x.take(a)
			for x.step != nil {
				x.next()
				w.check()
			}
		}
		if !a.acked {
			w.wrong("%s is never acked", a.key.Raw)
		}
		if n := w.effects(a); n < 1 && w.policy != driver.Once || w.quiet && n > 1+a.open { // open: settle and staff interrupt workers in quiet worlds too
			w.wrong("%s took effect %d times", a.key.Raw, n)
		}
	}
}

func (w *simulation) effects(a *message) int {
	n := a.outside
	for _, r := range w.db.Store().Tables().Rows("ledger") {
		if r.Value == a.key.Raw {
			n++
		}
	}
	return n
}

func (w *simulation) state(k driver.Key) driver.State {
	r, _, _ := w.db.Store().Record(context.Background(), k)
	return r.State
}

// check checks what has to be true at every moment.
func (w *simulation) check() {
	for _, a := range w.messages {
		n := w.effects(a)
		if w.policy == driver.Once && n > 1 {
			w.wrong("%s took effect %d times, and was to run once", a.key.Raw, n)
		}
		if n > 1+a.open {
			w.wrong("%s took effect %d times, with %d interrupted runs", a.key.Raw, n, a.open)
		}
		if n == 0 && (w.state(a.previous) == driver.Completed || w.state(a.key) == driver.Completed) {
			w.wrong("%s is completed without an effect", a.key.Raw)
		}
	}
}

// crash ends a process. Its open transaction ends with its connections.
func (x *worker) crash() {
	if x.tx != nil {
		_ = x.tx.Rollback(context.Background())
	}
	if x.ran && x.on != nil {
		x.on.doubt = true
	}
	*x = worker{w: x.w, fleet: x.fleet, store: x.store}
}

func (x *worker) next() {
	if x.step == nil {
		x.take(x.w.messages[x.w.IntN(len(x.w.messages))])
	}
	x.step()
}

// take gets a delivery of a message.
func (x *worker) take(a *message) {
	*x = worker{w: x.w, fleet: x.fleet, store: x.store, on: a}
	x.claim = driver.Claim{Key: a.key, Lease: modelLease, Takeover: x.w.policy, DeliveryID: "d"}
	switch x.fleet {
	case before:
		x.claim.Key = a.previous
	case during:
		x.claim.Key, x.claim.NewKey = a.previous, a.key
	}
	for i := range x.claim.Nonce {
		x.claim.Nonce[i] = byte(x.w.Uint32())
	}
	x.step = x.claims
}

func (x *worker) claims() {
	sent := x.w.Time()
	var grants []driver.Grant
	var err error
	if x.w.manner == inTx {
		x.tx, grants, err = x.store.Begin(context.Background(), x.claim)
	} else {
		grants, err = x.store.Claim(context.Background(), x.claim)
	}
	if err != nil || grants[0].Err != nil {
		if x.tx != nil {
			_ = x.tx.Rollback(context.Background())
		}
		if x.tx = nil; x.w.IntN(4) == 0 {
			x.crash() // it gives up
		}
		return
	}
	g := grants[0]
	switch g.Verdict {
	case driver.Acquired:
		x.hold, x.until, x.step = g.Hold, sent.Add(modelLease-time.Second), x.runs
		if x.w.policy == driver.Once && g.Unknown { // it is not run again
			x.finish = driver.Finish{Hold: x.hold, Final: driver.Park, Keep: modelKeep}
			x.step = x.ends
			return
		}
		if x.on.doubt && !g.Unknown && x.w.manner == outside {
			x.w.wrong("%s is run again after an interrupted run, and the run does not know", x.on.key.Raw)
		}
		return
	case driver.Replay:
		x.acks()
	case driver.Parked:
		x.on.acked = true // behind its dead letter
	}
	if x.tx != nil {
		_ = x.tx.Rollback(context.Background())
	}
	*x = worker{w: x.w, fleet: x.fleet, store: x.store}
}

// acks acks the message: both records have to be terminal for a worker that knows both keys.
func (x *worker) acks() {
	if x.on.acked = true; x.w.harm {
		return
	}
	if s := x.w.state(x.on.previous); x.fleet != after && s != driver.Completed {
		x.w.wrong("%s is acked while its previous record is %v", x.on.key.Raw, s)
	}
	if s := x.w.state(x.on.key); x.fleet != before && s != driver.Completed {
		x.w.wrong("%s is acked while its new record is %v", x.on.key.Raw, s)
	}
}

// runs is the handler: it has its effect, or fails, or is still at work.
func (x *worker) runs() {
	if !x.w.Time().Before(x.until) {
		x.crash() // its lease has ended by its own clock: it stops, and writes nothing
		return
	}
	x.finish = driver.Finish{Hold: x.hold, Final: driver.Complete, Keep: modelKeep, Result: []byte("r")}
	switch n := x.w.IntN(10); {
	case n == 0 && x.w.manner != inTx:
		sent := x.w.Time()
		out, err := x.store.Extend(context.Background(), modelLease, x.hold)
		switch {
		case err == nil && out[0] == driver.Applied:
			x.until = sent.Add(modelLease - time.Second)
		case err == nil && out[0] == driver.Lost:
			x.crash()
		}
		return
	case n == 1 && x.w.manner != inTx: // failed, and had no effect
		x.finish = driver.Finish{Hold: x.hold, Final: driver.Release, Ran: driver.NotApplied, Keep: modelKeep}
	case x.w.manner == outside:
		x.ran = true
		x.on.outside++
		x.on.open++
		if n == 2 && !x.w.quiet {
			x.finish = driver.Finish{Hold: x.hold, Final: driver.Release, Ran: driver.MaybeApplied, Keep: modelKeep}
			if x.w.policy == driver.Once {
				x.finish = driver.Finish{Hold: x.hold, Final: driver.Park, Keep: modelKeep}
			}
		}
	case x.w.manner == inTx:
		var tx *memory.Tx
		x.tx.As(&tx)
		_ = tx.Append("ledger", x.on.key.Raw)
	}
	x.step = x.ends
}

func (x *worker) ends() {
	work := driver.Work{Finish: x.finish}
	var out []driver.Outcome
	var err error
	switch complete := x.finish.Final == driver.Complete; {
	case x.w.manner == inTx:
		err = x.tx.Commit(context.Background(), work)
		out = []driver.Outcome{driver.Applied}
		if x.tx = nil; err != nil {
			x.step = x.claims // the same claim shows
			return
		}
	case x.w.manner == collected && complete:
		var e *memory.Effects
		x.store.Offers(&e)
		e.Append("ledger", x.on.key.Raw)
		work.Effects = e
		out, err = x.store.Commit(context.Background(), work)
	default:
		out, err = x.store.Finish(context.Background(), x.finish)
	}
	switch {
	case err != nil || out[0] == driver.Unknown:
		if !x.w.Time().Before(x.until) {
			x.crash()
		}
		return
	case out[0] == driver.Lost:
		x.crash()
		return
	}
	if x.finish.Final == driver.Complete {
		if x.ran && x.w.Time().Before(x.until) {
			x.on.open-- // else another may have taken the new key over, run with the doubt, and completed it
		}
		x.acks()
	} else if x.ran {
		x.on.doubt = true
	}
	if x.finish.Final == driver.Park {
		x.on.acked = true // behind its dead letter
	}
	*x = worker{w: x.w, fleet: x.fleet, store: x.store}
}

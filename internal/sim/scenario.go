package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

const (
	maxKeys    = 6
	maxWorkers = 3
	maxFaults  = 3
	maxEvents  = 100_000 // a seed takes some hundred

	lease    = 3 * time.Second
	visible  = lease * 10 / 9
	guard    = lease / 10
	keep     = time.Hour // covers every copy of a message (law 10)
	period   = 30 * 24 * time.Hour
	settleBy = 40 * time.Minute // after the last fault: I17
)

// brokenKeys is how many keys have to fail for a deployment to be broken.
const brokenKeys = 2

// effectKind says how the outside world treats effects.
type effectKind uint8

const (
	plain  effectKind = iota // every effect counts
	keyed                    // deduplicated on the effect key
	fenced                   // the resource compares tokens
	inTx                     // commits with the record
)

// conduct is how the handler of a key behaves.
type conduct uint8

const (
	conductOK conduct = iota
	conductFailsFirst
	conductFails
	conductPermanent
	conductKillsFirst
	conductKills
	conductDefersFirst
	conductOutageFirst // its downstream is gone
	conductDrops
	conductRefusedFirst // its effects are refused at the commit
	conductRefused
	conductLong
)

// spec is a message that a producer sends.
type spec struct {
	id      int // of the message: copies share it
	key     int
	fp      int
	group   int // 0 = none
	at      time.Duration
	delay   time.Duration
	keyless bool
}

// scenario is what a seed draws: the configuration, the workload and the faults.
type scenario struct {
	mode    machine.Mode
	effect  effectKind
	workers int
	cfg     machine.Config
	// takeover and probes are each worker's; a restart after a drain takes the next ones (a rolling deploy).
	takeover   [maxWorkers]driver.Takeover
	probes     [maxWorkers]bool
	deploy     driver.Takeover
	probeTells bool // the probe can tell, and refuses older tokens afterwards
	unkeyed    bool // messages without a key run unprotected, else they become dead letters

	queued bool // a batch handler's effects go with the commit

	versions bool // keys are versions of entities
	longTerm bool // records become EXPIRED at the end of their retention
	ageless  bool // the send times of messages are unknown

	staleOK, txWaits, dedupDead, wave2 bool

	counts   bool // the queue counts deliveries
	keeps    bool // deliveries have no visibility deadline
	atCommit bool // first deliveries are claimed at their commit

	pools int // messages that share limits: 0 = none, 1 = a group's, 2 = those of every other key

	keys    int
	specs   []spec
	conduct [maxKeys]conduct
	times   [maxKeys]int // the n of conduct*First

	faults  [maxFaults]fault
	nfaults int
	flaky   int // per mille of requests that go wrong while faults last
	slow    int // per mille of runs that outlast a lease
	people  int // operators' tasks
}

// draw fills in a scenario.
func (sc *scenario) draw(w *simulation) {
	specs := sc.specs[:0]
	*sc = scenario{}
	sc.mode = machine.Mode(w.Pick(50, 20, 30))
	switch sc.mode {
	case machine.Separate:
		sc.effect = effectKind(w.Pick(50, 15, 15, 20))
	case machine.Joined:
		sc.effect = effectKind(w.Pick(25, 10, 10, 55))
	default:
		sc.effect = inTx
	}
	if w.mut.ofAtCommit() {
		sc.mode, sc.effect = machine.Mode(w.Seed%2), inTx
	}
	sc.workers = 1 + w.Pick(20, 55, 25)
	sc.drawConfig(w)
	sc.staleOK, sc.txWaits, sc.dedupDead = w.Chance(500), w.Chance(500), w.Chance(500)
	sc.wave2 = w.Chance(60)
	sc.unkeyed = w.Chance(500)
	if sc.counts = w.Seed%5 != 2 || w.mut.ofAtCommit(); !sc.counts { // no draw of its own
		sc.unkeyed = false // neither a record nor a count shows when such a message has failed for good
	}
	sc.cfg.Counts = sc.counts
	sc.drawWork(w, specs)
	sc.people = w.Pick(40, 20, 20, 20)
	if w.Seed%4 == 3 || w.mut == mutDeferralForgotten { // no draw of its own: other seeds keep their histories
		sc.cfg.MaxAge = lease / 2
	}
	if w.mut.versioned() || w.mut == noMutant && w.Chance(200) {
		sc.drawVersions(w)
	}
	if sc.longTerm = !sc.versions && (w.mut == noMutant && w.Seed%6 == 5 || w.mut.ofExpiry()); sc.longTerm { // no draw of its own
		sc.wave2 = true
	}
	sc.drawAtCommit(w)
	if sc.mode != machine.Joined && (w.mut == noMutant && w.Seed%11 < 2 || w.mut == mutFencedKept) { // no draw of its own
		sc.keeps, sc.staleOK, sc.cfg.JoinedAck = true, false, false
	}
	if w.Faultless {
		return
	}
	sc.slow = [...]int{0, 50, 300}[w.Pick(50, 30, 20)]
	sc.flaky = [...]int{0, 30, 150}[w.Pick(60, 25, 15)]
	sc.nfaults = w.Pick(10, 40, 30, 20)
	for i := range sc.nfaults {
		sc.faults[i].draw(w)
	}
}

// drawAtCommit lets first deliveries be claimed at their commit, where [semel.New] allows it. It makes no draw of its own.
func (sc *scenario) drawAtCommit(w *simulation) {
	if sc.effect != inTx || sc.mode == machine.Open || sc.versions || !sc.counts || w.mut != noMutant && !w.mut.ofAtCommit() {
		return
	}
	if sc.atCommit = w.mut != noMutant || w.Seed%7 < 5; !sc.atCommit {
		return
	}
	sc.cfg.AtCommit, sc.deploy = true, driver.Resume
	sc.takeover, sc.probes = [maxWorkers]driver.Takeover{}, [maxWorkers]bool{}
}

func (sc *scenario) drawConfig(w *simulation) {
	batch := 1 + w.IntN(4)
	conc := 1 + w.IntN(3)
	sc.cfg = machine.Config{
		Concurrency: conc, Batch: batch, Lanes: 1 + w.IntN(2), InFlight: conc + w.IntN(batch+1),
		Lease: lease, Visibility: visible, Guard: guard, MaxRuntime: 4 * lease,
		Grace: lease / 2, HardStop: lease / 3,
		MaxAttempts: 1 + w.IntN(4), BackoffMin: 50 * time.Millisecond, BackoffMax: 2 * time.Second,
		Keep: keep, ResultMax: 1024, Extends: w.Chance(900), Orders: true, Mode: sc.mode, JoinedAck: w.Chance(500),
	}
	sc.cfg.Redrives = sc.cfg.JoinedAck // either way, and no draw of its own
	if w.Chance(200) {
		sc.cfg.Timeout = lease / time.Duration(1+w.IntN(6))
	}
	if sc.mode == machine.Open {
		if sc.cfg.Batched = w.Chance(600); sc.cfg.Batched {
			sc.cfg.Batch, sc.queued = 1+w.IntN(maxKeys), w.Chance(500)
		}
		sc.cfg.InFlight = sc.cfg.Batch * sc.cfg.Lanes * (1 + w.IntN(2))
	}
	policy := driver.Takeover(w.Pick(50, 25, 25))
	sc.deploy = policy
	if w.Chance(250) {
		sc.deploy = driver.Takeover(w.IntN(3))
	}
	for i := range sc.takeover {
		sc.takeover[i] = policy
		sc.probes[i] = policy == driver.Probe
	}
	sc.probeTells = w.Chance(700)
	sc.drawLimits(w)
}

// drawLimits draws the breaker, the rates and the pools: by group, or by key.
func (sc *scenario) drawLimits(w *simulation) {
	if w.Chance(500) {
		sc.cfg.Breaker = machine.BreakerConfig{Failures: 1 + w.IntN(2), OpenMin: lease / 10, OpenMax: 2 * lease}
		if w.Seed%2 == 0 || w.mut == mutReasonsDiffer { // no draw of its own
			sc.cfg.Breaker.Keys = brokenKeys
		}
	}
	if w.Chance(150) {
		sc.cfg.Every, sc.cfg.Burst = w.Between(time.Millisecond, lease/10), 1+w.IntN(3)
	}
	if sc.pools = w.Pick(60, 20, 20); sc.pools == 0 {
		return
	}
	if w.Chance(600) {
		sc.cfg.PoolConcurrency = 1 + w.IntN(2)
	}
	if w.Chance(400) {
		sc.cfg.PoolEvery, sc.cfg.PoolBurst = w.Between(time.Millisecond, lease/5), 1+w.IntN(2)
	}
}

// drawWork draws keys, their conduct and the messages with their duplicates.
func (sc *scenario) drawWork(w *simulation, specs []spec) {
	sc.keys = 2 + w.IntN(maxKeys-1)
	for k := range sc.keys {
		c := conductOK
		if w.Chance(350) {
			c = conduct(1 + w.IntN(int(conductLong)))
		}
		if (c == conductRefused || c == conductRefusedFirst) && sc.effect != inTx {
			c = conductFails
		}
		sc.conduct[k], sc.times[k] = c, 1+w.IntN(2)
	}
	groups := w.Pick(60, 25, 15) // the number of groups that keys share
	ids := 0
	var group [maxKeys]int
	for k := range sc.keys {
		if groups > 0 {
			group[k] = 1 + w.IntN(groups)
		}
		s := spec{id: ids, key: k, group: group[k], at: time.Duration(w.IntN(100)) * time.Millisecond}
		if w.Chance(50) {
			s.delay = time.Duration(w.IntN(2000)) * time.Millisecond
		}
		ids++
		specs = append(specs, s)
	}
	keyless, keylessID := 0, 0
	for range w.IntN(4) {
		s := specs[w.IntN(len(specs))]
		s.delay = 0
		s.at += time.Duration(w.IntN(5000)) * time.Millisecond
		switch w.Pick(40, 35, 15, 10) {
		case 0: // the broker's own copy
		case 1: // the producer sent it again
			s.id = ids
			ids++
		case 2: // the same key with another payload
			s.id, s.fp = ids, s.fp^1
			ids++
		case 3: // without a key; their sender has one id for all of them, and a body for each
			if keyless == 0 {
				keylessID = ids
				ids++
			}
			s = spec{id: keylessID, key: s.key, fp: keyless % len(fpText), at: s.at, keyless: true}
			keyless++
		}
		specs = append(specs, s)
	}
	sc.specs = specs
}

package sim

import (
	"context"
	"time"
)

// relayFault is what goes wrong with one request of a relay.
type relayFault uint8

const (
	relayFine        relayFault = iota
	relayCrashBefore            // the process dies before the request leaves
	relayCrashAfter             // the request is carried out, and the process dies before it knows
	relayDropped                // the request does not arrive
	relayNoResponse             // the request is carried out, the response is lost
	relayLate                   // the relay gives up, and the request is carried out much later
	relayFrozenOut              // the process is frozen before the request leaves, past its leases
	relayFrozenIn               // the process is frozen before the response reaches it, past its leases
	relayDrained                // the process is asked to stop
	relayFaults
)

var relayFaultNames = []string{
	"nothing", "a crash before", "a crash after", "a request dropped", "a response lost", "a late request", "a freeze before",
	"a freeze after", "a stop",
}

func (f relayFault) String() string { return relayFaultNames[f] }

// faulty reports whether faults still happen by themselves.
func (w *relaySimulation) faulty() bool { return w.Now < w.sc.quiet }

func (w *relaySimulation) latency() time.Duration {
	return w.Between(time.Millisecond, 20*time.Millisecond)
}

// request sends a request to the other side, or not.
func (w *relaySimulation) request(c *relayCall) {
	n, planted := w.Operation()
	fault := w.sc.faults[n]
	if planted {
		fault = relayFault(w.Fault + 1)
	} else if fault == relayFine && w.faulty() && w.Chance(w.sc.flaky/4) {
		fault = relayFault(1 + w.IntN(int(relayFaults)-1))
	}
	w.rewrite(c)
	if fault != relayFine {
		w.Log(-1, "relay %d: %v %v of operation %d", c.p.id, fault, c.what, n)
	}
	arrives := w.Now + w.latency()
	switch fault {
	case relayFine, relayDrained:
		w.on(arrives, func() { w.arrive(c) })
		if fault == relayDrained {
			w.on(w.Now, c.p.drain)
		}
	case relayCrashBefore:
		w.on(w.Now, c.p.crash)
	case relayCrashAfter:
		w.on(arrives, func() { w.apply(c) })
		w.on(arrives, c.p.crash)
	case relayDropped:
		w.stats.Lost++
		w.on(w.Now+time.Second, func() { w.fail(c) })
	case relayNoResponse:
		w.stats.Lost++
		w.on(arrives, func() { w.apply(c) })
		w.on(w.Now+time.Second, func() { w.fail(c) })
	case relayLate:
		w.stats.Late++
		w.late++
		w.on(w.Now+w.Between(time.Second, 3*relayVisible), func() { w.late--; w.apply(c) })
		w.on(w.Now+time.Second, func() { w.fail(c) })
	case relayFrozenOut:
		c.p.freeze()
		w.on(c.p.frozen, func() { w.arrive(c) })
	case relayFrozenIn:
		c.p.freeze()
		w.on(arrives, func() { w.arrive(c) })
	}
}

func (p *relay) freeze() {
	p.w.stats.Stalls++
	p.frozen = p.w.Now + p.w.Between(relayVisible/2, 2*relayVisible)
}

// arrive carries a request out and responds to it. A receive that finds nothing waits.
func (w *relaySimulation) arrive(c *relayCall) {
	if c.what == opReceive && c.p.dead {
		return
	}
	if c.what == opReceive && c.p.draining {
		c.err = context.Canceled
		w.respond(c)
		return
	}
	if !w.apply(c) {
		w.waiting = append(w.waiting, c)
		return
	}
	w.on(w.Now+w.latency(), func() { w.respond(c) })
}

// apply carries a request out; false when a receive found nothing.
func (w *relaySimulation) apply(c *relayCall) bool {
	if c.done {
		return true
	}
	switch c.what {
	case opReceive:
		return w.take(c)
	case opSettle:
		w.mark(c)
	case opExtend:
		w.extend(c)
	case opSend:
		w.publish(c)
	}
	c.done = true
	return true
}

// refuse counts what a relay takes for a refusal of the messages of a send.
func (w *relaySimulation) refuse(c *relayCall) {
	for i := range c.messages {
		if r := w.byID(c.messages[i].ID); r != nil {
			r.refused++
		}
	}
}

// fail ends a call without a response. The request may still be carried out.
func (w *relaySimulation) fail(c *relayCall) {
	if c.p.dead || c.given || c.to.waits != c {
		return
	}
	if c.p.frozen > w.Now {
		w.on(c.p.frozen, func() { w.fail(c) })
		return
	}
	c.ds, c.out, c.err = nil, nil, errSimulate
	w.refuse(c)
	w.respond(c)
}

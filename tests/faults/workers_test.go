package faults

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/tests/internal/crew"
)

// TestFM05_WorkerKilled kills workers in the middle of their work: between claim and effect (5), between effect and
// record where these are two writes (3), between record and ack (4).
func TestFM05_WorkerKilled(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		r.send(3000)
		first, second := r.spawn(r.task()), r.spawn(r.task())
		held := 0
		for i := range 6 {
			r.done(200 * (i + 1))
			first.Kill()
			held += r.count(`SELECT count(*) FROM semel_message WHERE nonce IS NOT NULL`)
			first, second = second, r.replace(first)
		}
		if held == 0 {
			r.Error("no worker was killed while it held a message")
		}
		r.held()
	})
}

// TestFM01_Zombie freezes a worker while its handlers run, until another has taken its work over, and lets it go on: its
// handlers return and what they did must not count (1), nor may its heartbeats take anything back (10).
func TestFM01_Zombie(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		slow := r.task()
		slow.Work = 300 * time.Millisecond
		zombie := r.spawn(slow)
		r.send(500)
		r.done(1)
		// Nothing is fetched ahead of slow handlers: between two batches it holds nothing.
		holds := func() bool { return r.count(`SELECT count(*) FROM semel_message WHERE nonce IS NOT NULL`) > 0 }
		stays := holds
		if r.mode == crew.Queued { // its handlers run outside of transactions: it holds keys too
			holds = func() bool { return r.count(`SELECT count(*) FROM semel_record WHERE state = 1`) > 0 }
			stays = func() (stays bool) {
				r.until("a lease to end", func() bool { // until then a commit that it has sent may arrive
					stays = r.count(`SELECT count(*) FROM semel_record WHERE state = 1 AND lease_until < clock_timestamp()`) > 0
					return stays || !holds()
				})
				return stays
			}
		}
		for frozen := false; !frozen; { // between the look and the signal a batch may come to its end
			r.until("the worker to hold messages", holds)
			if err := zombie.Freeze(); err != nil {
				r.Fatal(err)
			}
			if frozen = stays(); !frozen {
				if err := zombie.Thaw(); err != nil {
					r.Fatal(err)
				}
			}
		}
		before := r.count(`SELECT count(*) FROM ledger`)
		other := r.spawn(r.task())
		// The frozen worker holds some of the messages: all are done only when those are taken over.
		r.until("the work of the frozen one", func() bool { return r.count(`SELECT count(*) FROM semel_message`) == 0 })
		if err := zombie.Thaw(); err != nil {
			r.Fatal(err)
		}
		// The other one may be quicker: there is work until the zombie gets some.
		r.until("the zombie to work again", func() bool {
			if r.count(`SELECT count(*) FROM semel_message`) == 0 {
				r.send(100)
			}
			return r.count(`SELECT count(*) FROM ledger WHERE worker = $1`, zombie.Pid()) > before
		})
		r.held()
		if r.mode == crew.Queued && (other.Report().TakenOver == 0 || zombie.Report().Fenced == 0) {
			r.Errorf("%d runs taken over, %d attempts fenced: the zombie was none", other.Report().TakenOver, zombie.Report().Fenced)
		}
	})
}

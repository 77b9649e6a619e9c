package faults

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
)

// sqlTerminate ends a session of a worker that is just committing, or any when it need not be.
//
//	$1 any
const sqlTerminate = `SELECT count(pg_terminate_backend(pid)) FROM (
  SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'victim'
    AND ($1 OR state = 'active' AND query ILIKE '%commit%')
  ORDER BY random() LIMIT 1) victim`

// TestFM33_SessionTerminated terminates sessions while they commit, and now and then any. A commit takes 5 ms longer here
// than it has to, so that many are caught: the transaction is committed, the response is "terminating connection".
func TestFM33_SessionTerminated(t *testing.T) {
	t.Parallel()
	inModes(t, map[string]string{"commit_delay": "5000", "commit_siblings": "0"}, func(r *fixture) {
		task := r.task()
		task.URL += "&application_name=victim"
		r.spawn(task)
		r.spawn(task)
		committing, others := 0, 0
		for round := 0; committing < 30; round++ {
			if r.count(`SELECT count(*) FROM semel_message`) < 100 {
				r.send(300)
			}
			committing += max(0, r.count(sqlTerminate, false))
			if round%50 == 0 {
				others += max(0, r.count(sqlTerminate, true))
			}
			time.Sleep(3 * time.Millisecond) // the pause between two looks; the loop waits for the sessions
		}
		r.Logf("%d sessions terminated while they committed, %d others", committing, others)
		r.same()
		r.held()
	})
}

// TestFM33_CommitResponseLost loses responses to COMMIT: the effects are stored, but the worker does not know. It must ask
// again (70) and neither run the handler a second time nor give the message up.
func TestFM33_CommitResponseLost(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		const losses = 20
		p := r.proxy()
		task := r.task()
		task.URL = r.through(p)
		r.spawn(task)
		r.spawn(task)
		for i := range losses {
			p.LoseResponses(server.ToClient, "COMMIT\x00", 1)
			r.send(40)
			r.until("a lost response", func() bool { return p.Lost() > i })
		}
		r.same()
		r.held()
	})
}

// TestFM70_CommitNoResponse holds the responses back for longer than a lease, and then cuts the connection: a worker that
// reads the record while its commit is under way must not conclude that the commit failed.
func TestFM70_CommitNoResponse(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		p := r.proxy()
		task := r.task()
		task.URL = r.through(p)
		r.spawn(task)
		other := r.task()
		r.spawn(other)
		for _, d := range []server.Direction{server.ToClient, server.ToServer, server.ToClient | server.ToServer} {
			before := max(0, r.count(`SELECT count(*) FROM ledger`))
			r.send(600)
			r.done(before + 50)
			p.Stall(d)
			r.until("a connection that is stalled", func() bool { return p.Conns() > 0 })
			time.Sleep(visibility + 500*time.Millisecond) // past the lease: time is what this is about
			p.Cut()
			p.Stall(0)
		}
		r.send(100)
		r.same()
		r.held()
	})
}

// TestFM34_ServerRestarts takes the server down under its workers, which have to wait and go on by themselves.
func TestFM34_ServerRestarts(t *testing.T) {
	t.Parallel()
	inModesAlone(t, func(r *fixture) {
		r.spawn(r.task())
		r.spawn(r.task())
		for i, down := range []func() error{
			func() error { return r.server.Stop(server.Immediate) },
			r.server.Kill,
			func() error { return r.server.Stop(server.Fast) },
			r.server.Kill,
		} {
			r.send(500)
			r.done(300*i + 100)
			if err := down(); err != nil {
				r.Fatal(err)
			}
			if i == 1 {
				time.Sleep(visibility + time.Second) // an outage that outlives every lease
			}
			if err := r.server.Start(r.Context()); err != nil {
				r.Fatal(err)
			}
		}
		r.send(200)
		r.same()
		r.held()
	})
}

// TestFM34_ConnectionsRefused cuts the workers off while the server goes on: only another worker takes over their messages,
// and they reconnect.
func TestFM34_ConnectionsRefused(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		p := r.proxy()
		task := r.task()
		task.URL = r.through(p)
		w := r.spawn(task)
		for i := range 3 {
			before := max(0, r.count(`SELECT count(*) FROM ledger`))
			r.send(300)
			r.done(before + 50)
			r.until("the worker to be connected", func() bool { return p.Conns() > 0 })
			p.Refuse(true)
			p.Cut()
			time.Sleep(visibility / 3 * time.Duration(i+1)) // shorter and longer than a lease
			p.Refuse(false)
		}
		r.held()
		if w.Report().Paused+w.Report().Troubles == 0 {
			r.Error("the worker noticed nothing")
		}
	})
}

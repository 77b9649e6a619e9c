package verify

import (
	"errors"
	"net/http"
	"runtime"
	"time"
)

// Effect is one thing that a process did to the world.
type Effect struct {
	// Name is the method and URL, the SQL, or the name given to [Process.Effect].
	Name string
	// Key is what the other side deduplicates by; "" = nothing.
	Key string
	// Message is the sample that it belongs to; "" = the only one, or it is not known.
	Message string
	// Process is the number of the process that did it, from 1; Run counts the runs of its handler, from 1.
	Process, Run int
	// Where is the place outside of a run in which it was done ("Config.Key"); "" = in a run.
	Where string
	// Ended: the run's context had ended before.
	Ended bool
	// Queued: it committed with the record, and cannot happen without it.
	Queued bool

	kind    effectKind
	natural bool   // the same again changes nothing (PUT, DELETE): Key is made of its content
	content string // compared between attempts with one key; "" = not known
	nth     int    // which of this name in its process, from 0
	inTx    bool   // inside of the program's own SQL transaction
}

// Request is an HTTP request as an effect: its name is its method and URL. One with the same key counts once. PUT and
// DELETE are idempotent (RFC 9110, section 9.2.2): without a key they count once for each content.
func Request(method, url, key, content string) Effect {
	e := Effect{Name: method + " " + url, Key: key, kind: request, content: content}
	if key == "" && (method == http.MethodPut || method == http.MethodDelete) {
		e.Key, e.natural = "content "+content, true
	}
	return e
}

type effectKind uint8

const (
	explicit effectKind = iota
	request
	statement
	commit // of the program's own SQL transaction; what it commits are effects of their own
	queued
	emitted
)

var (
	errNotSent = errors.New("verify: connection refused")
	errNoReply = errors.New("verify: connection reset: the response is lost")
)

// effect does one effect of the process under the schedule's fault. do reports whether it happened. The goroutine ends
// here when the process dies.
func (p *Process) effect(e Effect, do func() (happened bool, err error)) error {
	if p.w.fault.slow {
		time.Sleep(2 * time.Millisecond)
	}
	hit := p.enter(&e)
	if hit {
		switch p.w.fault.kind {
		case CrashBefore:
			p.die()
		case NotSent:
			return errNotSent
		case LeaseLost, Paused, DuplicateMeanwhile:
			p.stall()
		}
	}
	p.alive()
	e.Ended = p.ended()
	happened, err := do()
	if happened {
		p.w.record(e)
	}
	if hit {
		switch p.w.fault.kind {
		case CrashAfter, DuplicateTakesOver:
			p.die()
		case ResponseLost:
			return errNoReply
		case ResponseLate:
			p.stall()
		}
	}
	p.alive()
	return err
}

// enter completes e and reports whether the fault strikes here. Effects of a starting process are not judged.
func (p *Process) enter(e *Effect) (hit bool) {
	p.alive()
	p.w.update(func() {
		e.Process, e.Run, e.Where = p.number, p.runs, p.where()
		if e.kind != commit {
			e.nth = p.seen[e.Name]
			p.seen[e.Name]++
		}
		f := &p.w.fault
		if p.number != 1 || p.w.struck || e.Where != "" || f.kind.whole() || f.target != (target{e.Name, e.nth}) {
			return
		}
		p.w.struck, hit = true, true
	})
	return hit
}

// alive ends the goroutine when the process is dead or the schedule has ended, so that it does nothing after that.
func (p *Process) alive() {
	p.w.mu.Lock()
	gone := p.dead || p.w.over
	p.w.mu.Unlock()
	if gone {
		runtime.Goexit()
	}
}

// stall keeps the effect until another worker has finished.
func (p *Process) stall() {
	p.w.update(func() { p.w.stalled = true })
	for {
		p.w.mu.Lock()
		changed, on := p.w.changed, p.w.released || p.w.over || p.dead
		p.w.mu.Unlock()
		if on {
			return
		}
		<-changed
	}
}

// where names the place outside of a run; "" inside. The lock is held.
func (p *Process) where() string {
	switch {
	case p.phase != "":
		return p.phase
	case p.running > 0 || !p.around && p.holding > 0:
		return ""
	case p.runs > 0:
		return afterRun
	}
	return beforeClaim
}

// Places outside of a run.
const (
	starting    = "start"
	beforeClaim = "before the claim"
	afterRun    = "after the handler returned"
)

// record adds an effect that happened. Effects of a starting process belong to no message.
func (w *execution) record(e Effect) {
	if e.Where == starting {
		return
	}
	w.update(func() { w.effects = append(w.effects, e) })
}

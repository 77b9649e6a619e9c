package attack

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/semeltest/verify"
)

// undisturbed sends the messages without any fault.
func undisturbed(s *trial) error {
	if s.attack.Kind != verify.Plain {
		if err := s.begin(); err != nil {
			return err
		}
		return s.settled()
	}
	s.maxAttempts = 1 // a handler that fails with the sample is not to be waited for
	if err := s.begin(); err != nil {
		return err
	}
	hopeless := false
	if _, err := s.wait(func() (bool, error) {
		st, err := s.queue.Stats(s.ctx)
		if err != nil || st.Empty() || !s.anyWorker() {
			return true, err
		}
		hopeless, err = s.hopeless()
		return hopeless, err
	}); err != nil {
		return err
	}
	if hopeless {
		s.until = time.Now()
	}
	return s.settled()
}

// hopeless: runs fail in a way that spends no attempt, again and again.
func (s *trial) hopeless() (bool, error) {
	lines, err := s.events()
	if err != nil {
		return false, err
	}
	failed := 0
	for _, l := range lines {
		if l.Kind == "ended" && l.Error != "" {
			failed++
		}
	}
	return failed > 2*len(s.keys), nil
}

// killAnytime kills the first run of each message at a moment of its own, as far into it as the seed says.
func killAnytime(s *trial) error {
	draw := rand.New(rand.NewPCG(s.Seed, 1))
	share := make([]float64, len(s.keys))
	for i := range share {
		share[i] = draw.Float64()
	}
	if err := s.begin(); err != nil {
		return err
	}
	due, killed := map[int]time.Time{}, 0
	if _, err := s.wait(func() (bool, error) {
		runs := s.shimRuns()
		for i, run := range runs[:min(len(runs), len(share))] {
			at, known := due[i]
			switch {
			case !known:
				due[i] = time.Now().Add(time.Duration(share[i] * float64(s.base.took)))
			case !at.IsZero() && !time.Now().Before(at):
				if due[i] = (time.Time{}); !run.ended() {
					killGroup(run.pid)
				}
				killed++
			}
		}
		return killed == len(share) || !s.anyWorker(), nil
	}); err != nil {
		return err
	}
	return s.settled()
}

// again sends the message once more, when it is done.
func again(s *trial, id string) error {
	if err := s.begin(); err != nil {
		return err
	}
	done, err := s.wait(func() (bool, error) {
		st, err := s.queue.Stats(s.ctx)
		return err == nil && st.Empty() || !s.anyWorker(), err
	})
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	if !done {
		s.unsettled = true
		return nil
	}
	if err := s.send(s.message(s.keys[0], id)); err != nil {
		return err
	}
	return s.settled()
}

func redelivered(s *trial) error { return again(s, s.keys[0]) }
func resent(s *trial) error      { return again(s, copyOf(s.keys[0])) }

func concurrent(s *trial) error {
	if err := s.send(s.message(s.keys[0], s.keys[0]), s.message(s.keys[0], copyOf(s.keys[0]))); err != nil {
		return err
	}
	for range 2 {
		if _, err := s.worker(); err != nil {
			return err
		}
	}
	return s.settled()
}

func poisoned(s *trial) error {
	if err := s.send(s.poison(s.keys[0], s.keys[0])); err != nil {
		return err
	}
	if _, err := s.worker(); err != nil {
		return err
	}
	return s.settled()
}

// faultWith has the service do f to one of the handler's effects.
func faultWith(f fault) func(*trial) error {
	return func(s *trial) error {
		f := f
		f.at = s.nth
		s.svc.plan(s.scope, f)
		return s.struckThenSettled()
	}
}

func refused(s *trial) error {
	s.svc.plan(s.scope, fault{at: s.nth, cut: true}, fault{at: 0, skip: true, status: 409})
	return s.struckThenSettled()
}

// struckThenSettled is for faults that need nothing else.
func (s *trial) struckThenSettled() error {
	if err := s.begin(); err != nil {
		return err
	}
	err := s.settled()
	select {
	case <-s.scope.struck:
		s.struck = true
	default:
	}
	return err
}

func slow(s *trial) error {
	s.timeout = min(s.timeout, max(minTimeout, 5*s.base.took))
	s.svc.plan(s.scope, fault{at: s.nth, holdResponse: true})
	return s.struckThenSettled()
}

func killBefore(s *trial) error {
	return s.atPoint(atStart, s.killHandler)
}

func killMiddle(s *trial) error {
	s.svc.plan(s.scope, fault{at: s.nth, hold: true})
	return s.atPoint(atEffect, s.killHandler)
}

func killAfter(s *trial) error { return s.atPoint(s.afterEffect(), s.killHandler) }

func workerKilled(s *trial) error {
	return s.atPoint(s.afterEffect(), func() error {
		s.procs[0].Kill() // what it ran dies with it
		_, err := s.worker()
		return err
	})
}

func deployed(s *trial) error {
	s.grace = 200 * time.Millisecond
	s.svc.plan(s.scope, fault{at: s.nth, hold: true})
	return s.atPoint(atEffect, func() error {
		s.procs[0].drain(drainTime)
		if s.proxy != nil {
			s.release() // an endpoint goes on; a program is dead by now
		}
		_, err := s.worker()
		return err
	})
}

// twoAtOnce holds the handler where it is, stops its worker, lets another one do everything, and then lets both go on.
func twoAtOnce(s *trial) error {
	where := atStart
	if s.base.requests > 0 {
		where = atEffect
		s.svc.plan(s.scope, fault{at: s.nth, hold: true})
	}
	return s.atPoint(where, func() error {
		p := s.procs[0]
		if err := s.freeze(p); err != nil {
			return err
		}
		second, err := s.worker()
		if err != nil {
			return err
		}
		done, err := s.wait(func() (bool, error) { return s.doneByOther(second) })
		if err != nil {
			return err
		}
		s.struck = done
		if err := s.goOn(where); err != nil {
			return err
		}
		_ = p.Thaw() // it may have ended
		p.frozen = false
		return nil
	})
}

// doneByOther reports whether the second worker finished the message.
func (s *trial) doneByOther(second *process) (bool, error) {
	if !second.Running() {
		return true, nil
	}
	lines, err := s.events()
	if err != nil {
		return false, err
	}
	for _, l := range lines {
		if l.Kind == "settled" && l.Action != "retry" && l.Action != "defer" {
			return true, nil
		}
	}
	return false, nil
}

// afterEffect plans a hold right after the nth effect, and returns where that is: at the service, or, where the handler
// does not call it, at the end of its run.
func (s *trial) afterEffect() point {
	if s.HTTP == "" && s.base.requests > 0 {
		s.svc.plan(s.scope, fault{at: s.nth, holdResponse: true})
		return atEffect
	}
	return atEnd
}

// atPoint runs the handler until it is held at a point, then does what is to be done, and waits for the end.
func (s *trial) atPoint(p point, do func() error) error {
	if err := s.holdAt(p); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	reached, err := s.wait(func() (bool, error) {
		if s.reached(p) {
			s.struck = true
			return true, nil
		}
		st, err := s.queue.Stats(s.ctx)
		return err == nil && st.Empty() || !s.anyWorker(), err
	})
	if err != nil {
		return err
	}
	if reached && s.struck {
		s.holdNoMore(p)
		if err := do(); err != nil {
			return err
		}
	}
	return s.settled()
}

// killHandler ends the run that is held: the process group, or the connection to an endpoint.
func (s *trial) killHandler() error {
	if s.proxy != nil {
		s.proxy.pass(false)
		return nil
	}
	killGroup(s.shimRuns()[0].pid)
	return nil
}

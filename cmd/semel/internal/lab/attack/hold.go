package attack

import (
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
)

// holdAt has the first run stop at a point; holds at effects are the service's, and planned there.
func (s *trial) holdAt(p point) error {
	switch {
	case p == atEffect:
		return nil
	case s.proxy != nil:
		s.proxy.arm(p)
		return nil
	}
	if err := os.WriteFile(s.path("runs."+string(p)), nil, 0o600); err != nil {
		return fmt.Errorf("tell the handler's shim: %w", err)
	}
	return nil
}

// holdNoMore lets all further runs pass.
func (s *trial) holdNoMore(p point) {
	if p != atEffect && s.proxy == nil {
		_ = os.Remove(s.path("runs." + string(p)))
	}
}

// reached reports whether a run is held at the point.
func (s *trial) reached(p point) bool {
	switch {
	case p == atEffect:
		select {
		case <-s.scope.struck:
			return true
		default:
			return false
		}
	case s.proxy != nil:
		select {
		case <-s.proxy.held:
			return true
		default:
			return false
		}
	}
	for _, l := range readShim(s.path("runs")) {
		if l.at == p {
			return true
		}
	}
	return false
}

// release ends the holds of the service.
func (s *trial) release() {
	select {
	case <-s.scope.released:
	default:
		close(s.scope.released)
	}
}

// freeze stops a worker while it does not write: with the write lock it would keep the other one from the queue.
func (s *trial) freeze(p *process) error {
	return place.WithWriteLock(s.ctx, func() {
		p.frozen = p.Freeze() == nil
		time.Sleep(tick) // until a system call that it is in has ended
	}, s.db.SQL())
}

// goOn lets the first run go on, and waits until it has ended.
func (s *trial) goOn(p point) error {
	switch {
	case p == atEffect:
		s.release()
	case s.proxy != nil:
		s.proxy.pass(true)
	}
	_, err := s.wait(func() (bool, error) {
		if s.proxy != nil {
			runs, ended := s.proxy.count()
			return ended >= runs, nil
		}
		first := s.shimRuns()[0]
		thawGroup(first.pid) // again and again: it may not have stopped yet
		return first.ended(), nil
	})
	return err
}

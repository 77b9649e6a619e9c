package attack

import (
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/rig"
)

// holdAt has the first run stop at a point; holds at effects are the service's, and planned there.
func (s *scene) holdAt(p point) error {
	switch {
	case p == atEffect:
		return nil
	case s.front != nil:
		s.front.arm(p)
		return nil
	}
	if err := os.WriteFile(s.path("runs."+string(p)), nil, 0o600); err != nil {
		return fmt.Errorf("tell the handler's shim: %w", err)
	}
	return nil
}

// holdNoMore lets all further runs pass.
func (s *scene) holdNoMore(p point) {
	if p != atEffect && s.front == nil {
		_ = os.Remove(s.path("runs." + string(p)))
	}
}

// reached tells that a run is held at the point.
func (s *scene) reached(p point) bool {
	switch {
	case p == atEffect:
		select {
		case <-s.scope.struck:
			return true
		default:
			return false
		}
	case s.front != nil:
		select {
		case <-s.front.held:
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

// release lets go what the service holds.
func (s *scene) release() {
	select {
	case <-s.scope.released:
	default:
		close(s.scope.released)
	}
}

// freeze stops a worker while it does not write: with the write lock it would keep the other one from the queue.
func (s *scene) freeze(p *process) error {
	return rig.Still(s.ctx, func() {
		freeze(p.pid())
		p.frozen = true
		time.Sleep(tick) // until a system call that it is in has ended
	}, s.db.SQL())
}

// goOn lets the first run go on, and waits until it has ended.
func (s *scene) goOn(p point) error {
	switch {
	case p == atEffect:
		s.release()
	case s.front != nil:
		s.front.pass(true)
	}
	_, err := s.wait(func() (bool, error) {
		if s.front != nil {
			runs, ended := s.front.count()
			return ended >= runs, nil
		}
		first := s.shimPIDs()[0]
		thawGroup(first) // again and again: it may not have stopped yet
		return dead(first), nil
	})
	return err
}

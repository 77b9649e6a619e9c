package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/api"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Spec says what to set up.
type Spec struct {
	// State is what Up reserved: folder and token.
	State State `json:"state"`
	// Addr is where HTTP listens; port 0 picks a free one.
	Addr  string      `json:"addr"`
	Where place.Where `json:"where"`
	// Visibility is the queue's visibility timeout.
	Visibility time.Duration `json:"visibility"`
	// Worker: a worker consumes the queue, as Knobs say.
	Worker bool           `json:"worker"`
	Knobs  simulate.Knobs `json:"knobs"`
	// Files are written for the user as soon as the sandbox is ready.
	Files []Wanted `json:"files,omitempty"`
	Seed  uint64   `json:"seed"`
}

// grace is how long a handler may go on when the sandbox is taken down: all it did is removed anyway.
const grace = 200 * time.Millisecond

// Serve sets up the sandbox, calls ready, and serves until ctx ends or a request with the token takes it down. Before it
// returns it removes everything that it made, whatever happened, and it returns the list.
func Serve(ctx context.Context, spec Spec, log *slog.Logger, ready func(State) error) (gone []Item, err error) {
	s := &sandbox{spec: spec, state: spec.State, log: log, down: make(chan struct{}), removed: make(chan struct{})}
	s.state.PID = os.Getpid()
	l, err := web.Listen(ctx, spec.Addr)
	if err != nil {
		_, cerr := s.state.clear(false)
		return nil, errors.Join(err, cerr)
	}
	s.state.Endpoint = "http://" + l.Addr().String() + "/"
	setup, err := place.NewSetup(spec.Where, spec.Seed)
	if err != nil {
		_, cerr := s.state.clear(false)
		return nil, errors.Join(err, cerr, l.Close())
	}
	s.hosts = web.NewHosts(spec.Addr, "")
	server := web.Server(web.Guard(s.paths(), s.hosts, api.Refuse), log)
	err = s.run(ctx, setup, func() error {
		go func() { _ = server.Serve(web.Limit(l)) }() // until Shutdown
		return ready(s.state)
	})
	gone, rerr := s.remove(ctx, setup)
	s.outcome.Gone = gone
	if rerr != nil {
		s.outcome.Error = rerr.Error()
	}
	_ = l.Close() // the port is free when the caller learns that everything is gone
	close(s.removed)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = server.Shutdown(late) // the response may be on its way
	return gone, errors.Join(err, rerr, setup.Close())
}

// sandbox is a running sandbox.
type sandbox struct {
	spec  Spec
	state State
	log   *slog.Logger
	hosts web.Hosts

	queue    driver.Queue
	store    driver.Store
	consumer *semel.Consumer

	// down is closed when it is to be taken down, removed when everything is gone: outcome then lists it.
	down     chan struct{}
	downOnce sync.Once
	removed  chan struct{}
	outcome  outcome
}

// outcome is the result of taking it down.
type outcome struct {
	Gone  []Item `json:"gone"`
	Error string `json:"error,omitempty"`
}

// run makes place, worker and files, and blocks until the end.
func (s *sandbox) run(ctx context.Context, setup *place.Setup, ready func() error) (err error) {
	if s.state.URLs, err = setup.Make(ctx, "up", s.state.Dir, s.spec.Visibility); err != nil {
		return err
	}
	if err := s.dress(ctx); err != nil {
		return err
	}
	set := open.New(open.Options{Visibility: s.spec.Visibility})
	defer func() { err = errors.Join(err, set.Close()) }()
	if s.queue, err = set.Queue(ctx, s.state.URLs.Queue); err != nil {
		return err
	}
	if s.store, err = set.Store(ctx, s.state.URLs.Store); err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	wait := func() error {
		stop()
		return <-ended
	}
	if err := s.startWorker(work, ended); err != nil {
		stop()
		return err
	}
	if err := s.announce(ready); err != nil {
		return errors.Join(err, wait())
	}
	select {
	case <-ctx.Done():
	case <-s.down:
	case err := <-ended:
		stop()
		if ctx.Err() != nil {
			return err
		}
		return errors.Join(errors.New("the worker ended by itself"), err)
	}
	return wait()
}

// announce writes the files of the user, then the state, and reports that the sandbox is ready.
func (s *sandbox) announce(ready func() error) error {
	for _, w := range s.spec.Files {
		f, err := w.write(s.state)
		if err != nil {
			return err
		}
		s.state.Files = append(s.state.Files, f)
	}
	if err := s.state.save(); err != nil {
		return err
	}
	return ready()
}

// startWorker starts the worker; ended gets its result.
func (s *sandbox) startWorker(ctx context.Context, ended chan<- error) error {
	if !s.spec.Worker {
		go func() {
			<-ctx.Done()
			ended <- nil
		}()
		return nil
	}
	knobs := s.spec.Knobs
	knobs.Ledger = s.state.EffectsPath()
	sim, err := simulate.New(knobs, s.log)
	if err != nil {
		return fmt.Errorf("make the worker: %w", err)
	}
	key, err := key.Parse("id")
	if err != nil {
		return fmt.Errorf("make the worker: %w", err)
	}
	cfg := semel.Config{
		Queue: s.queue, Store: s.store, Consumer: s.queue.Features().Name, Key: key, Visibility: s.spec.Visibility,
		Grace: grace, Logger: s.log,
	}
	sim.Attach(&cfg, nil)
	if s.consumer, err = semel.New(cfg); err != nil {
		return errors.Join(fmt.Errorf("make the worker: %w", err), sim.Close())
	}
	go func() { ended <- errors.Join(s.consumer.Run(ctx), sim.Close()) }()
	return nil
}

// remove removes everything, also after ctx has ended. Where that fails the state stays, to try again.
func (s *sandbox) remove(ctx context.Context, setup *place.Setup) (gone []Item, err error) {
	there, p := s.state.elsewhere()
	if err := errors.Join(place.Remove(ctx, p), setup.Remove(ctx)); err != nil {
		return nil, err
	}
	files, err := s.state.clear(false)
	return slices.Concat([]Item{{What: "port", Name: s.state.Endpoint}}, there, files), err
}

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/semel-dev/semel/tests/internal/crew"
)

// fleet is the worker processes. A place in it keeps its mode when its worker is replaced.
type fleet struct {
	config
	url string

	mu       sync.Mutex
	workers  []*crew.Worker
	past     []crew.Report // of those that were killed
	problems []string
}

func (f *fleet) spawn(place int) (*crew.Worker, error) {
	return crew.Spawn(crew.Task{
		URL: f.url, Queue: crew.Queue, Mode: f.modes[place%len(f.modes)], Visibility: f.visibility,
		MaxTx: f.visibility, LockWait: 200 * time.Millisecond, Concurrency: 64, Committers: 2, Batch: 100,
	})
}

func (f *fleet) start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for place := range f.config.workers {
		w, err := f.spawn(place)
		if err != nil {
			return err
		}
		f.workers = append(f.workers, w)
	}
	return nil
}

// replace kills a worker, frozen or not, and starts another in its place.
func (f *fleet) replace(rng *rand.Rand) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replaceAt(rng.IntN(len(f.workers)))
}

// fix replaces workers that ended on their own. Each is a problem, because only SIGKILL ends a good worker.
func (f *fleet) hint() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for place, w := range f.workers {
		select {
		case <-w.Done():
			if err := f.replaceAt(place); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// replaceAt needs the lock.
func (f *fleet) replaceAt(place int) error {
	old := f.workers[place]
	select {
	case <-old.Done():
		f.problems = append(f.problems, problem(old))
	default:
	}
	old.Kill()
	f.past = append(f.past, old.Report())
	w, err := f.spawn(place)
	if err != nil {
		return err
	}
	f.workers[place] = w
	return nil
}

func problem(w *crew.Worker) string {
	if err := w.Err(); err != nil {
		return err.Error()
	}
	return "a worker ended without being asked"
}

// freeze stops a worker for longer than its leases, and sends to the channel when it resumes. It does nothing if the chosen
// worker is frozen already, or no other would be left to work.
func (f *fleet) freeze(ctx context.Context, rng *rand.Rand, thawed chan<- error) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[rng.IntN(len(f.workers))]
	awake := 0
	for _, other := range f.workers {
		if !other.Frozen() {
			awake++
		}
	}
	if w.Frozen() || awake < 2 {
		return false, nil
	}
	if err := w.Freeze(); err != nil {
		return false, err
	}
	go func() {
		crew.Sleep(ctx, f.visibility+time.Second)
		select {
		case <-w.Done(): // killed while it was frozen
			thawed <- nil
		default:
			thawed <- w.Thaw()
		}
	}()
	return true, nil
}

// stop has all workers drain, and returns what was wrong with them.
func (f *fleet) stop() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		select {
		case <-w.Done():
			f.problems = append(f.problems, problem(w))
			continue
		default:
		}
		if err := w.Stop(); err != nil {
			f.problems = append(f.problems, err.Error())
		}
	}
	return f.problems
}

// sum adds up what the workers said.
func (f *fleet) sum() (s crew.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.past
	for _, w := range f.workers {
		all = append(all, w.Report())
	}
	for _, r := range all {
		s.TakenOver += r.TakenOver
		s.Fenced += r.Fenced
		s.Paused += r.Paused
	}
	return s
}

func (f *fleet) killAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		w.Kill()
	}
}

package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/semel-dev/semel/tests/internal/crew"
)

// fleet is the worker processes of a campaign. A place in it keeps its mode when its worker is replaced.
type fleet struct {
	*campaign

	mu       sync.Mutex
	workers  []*crew.Worker
	past     []crew.Report // of those that have ended
	problems []string
}

func (f *fleet) spawn(place int) (*crew.Worker, error) {
	task := f.task
	task.Mode = f.modes[place%len(f.modes)]
	return crew.Spawn(task)
}

func (f *fleet) start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for place := range workers {
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

// replaceEnded replaces workers that ended on their own. Each is a problem, because only SIGKILL ends a good worker.
func (f *fleet) replaceEnded() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for place, w := range f.workers {
		if !w.Running() {
			if err := f.replaceAt(place); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceAt needs the lock.
func (f *fleet) replaceAt(place int) (err error) {
	old := f.workers[place]
	f.ended(old)
	old.Kill()
	f.past = append(f.past, old.Report())
	f.workers[place], err = f.spawn(place)
	return err
}

// ended remembers a worker that has ended by itself, and reports whether it has.
func (f *fleet) ended(w *crew.Worker) bool {
	if w.Running() {
		return false
	}
	problem := "a worker ended without being asked"
	if err := w.Err(); err != nil {
		problem = err.Error()
	}
	f.problems = append(f.problems, problem)
	return true
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
		if !w.Running() { // killed while it was frozen
			thawed <- nil
			return
		}
		thawed <- w.Thaw()
	}()
	return true, nil
}

// stop has all workers drain, and returns what was wrong with them.
func (f *fleet) stop() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if !f.ended(w) {
			if err := w.Stop(); err != nil {
				f.problems = append(f.problems, err.Error())
			}
		}
		f.past = append(f.past, w.Report())
	}
	f.workers = nil
	return f.problems
}

// sum adds up what the workers reported. Those that were killed did not report everything.
func (f *fleet) sum() (takenOver, fenced int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.past {
		takenOver, fenced = takenOver+r.TakenOver, fenced+r.Fenced
	}
	return takenOver, fenced
}

// reports is what the workers say that run, for a campaign that is stuck.
func (f *fleet) reports() (text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		text += fmt.Sprintf("\n%d (%s): %+v", w.Pid(), w.Task.Mode, w.Report())
	}
	return text
}

func (f *fleet) killAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		w.Kill()
	}
}

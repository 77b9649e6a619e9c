package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/internal/wait"
)

// DownFile is the file in a run's folder that puts the database out of reach while it is there.
const DownFile = "down"

// The files by which the parent of a watched run injects faults. The worker that removes DropAckFile loses its next ack.
// While DeafFile exists, no heartbeat arrives.
const (
	DropAckFile = "drop-ack"
	DeafFile    = "deaf"
)

// errDown is what every call returns while the database is out of reach.
var errDown = errors.New("the database is out of reach")

// faults draws what goes wrong between this process and its queue and store.
type faults struct {
	wire    plan.Wire
	file    string
	dir     string
	watched bool

	mu  sync.Mutex
	rng *rand.Rand
}

func newFaults(s Spec) *faults {
	life := uint64(s.Worker)<<32 | uint64(s.Life)
	return &faults{
		wire: s.Wire, file: filepath.Join(s.Dir, DownFile), dir: s.Dir, watched: s.Watched, rng: rand.New(rand.NewPCG(s.Seed, life)),
	}
}

// down returns errDown while the database is out of reach.
func (f *faults) down() error {
	if _, err := os.Stat(f.file); err == nil {
		return errDown
	}
	return nil
}

// dropAck reports whether this ack is the one that a person wants to be dropped. Only one of the workers gets true.
func (f *faults) dropAck() bool {
	return f.watched && os.Remove(filepath.Join(f.dir, DropAckFile)) == nil
}

// deaf is the share of the heartbeats that do not arrive.
func (f *faults) deaf() float64 {
	if f.watched {
		if _, err := os.Stat(filepath.Join(f.dir, DeafFile)); err == nil {
			return 1
		}
	}
	return f.wire.FailExtend
}

// strikes draws whether a fault of this share happens to this call.
func (f *faults) strikes(share float64) bool {
	if share <= 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.Float64() < share
}

// slow holds a call of the store up.
func (f *faults) slow(ctx context.Context) {
	if f.strikes(f.wire.SlowStore) {
		_ = wait.Until(ctx, time.Now().Add(f.wire.SlowFor))
	}
}

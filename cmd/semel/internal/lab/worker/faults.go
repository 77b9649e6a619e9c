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
)

// DownFile is the file in a run's folder that puts the database out of reach while it is there.
const DownFile = "down"

// errDown is what every call answers while the database is out of reach.
var errDown = errors.New("the database is out of reach")

// faults draws what goes wrong between this process and its queue and store.
type faults struct {
	wire plan.Wire
	file string

	mu  sync.Mutex
	rng *rand.Rand
}

func newFaults(s Spec) *faults {
	life := uint64(s.Worker)<<32 | uint64(s.Life)
	return &faults{wire: s.Wire, file: filepath.Join(s.Dir, DownFile), rng: rand.New(rand.NewPCG(s.Seed, life))}
}

// down answers errDown while the database is out of reach.
func (f *faults) down() error {
	if _, err := os.Stat(f.file); err == nil {
		return errDown
	}
	return nil
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
	if !f.strikes(f.wire.SlowStore) {
		return
	}
	t := time.NewTimer(f.wire.SlowFor)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/internal/process"
)

// gate is where a worker passes the named steps, and where it is struck at the planned passage.
type gate struct {
	strikes []plan.Strike
	worker  int
	dir     string // of the markers that make a strike happen once per run
	log     *eventlog.Log
	die     func() // does not return
	freeze  func() // returns when the parent has frozen the process, and lets it go on

	mu     sync.Mutex
	passes map[plan.Step]int
}

func newGate(strikes []plan.Strike, worker int, dir string, log *eventlog.Log) *gate {
	return &gate{
		strikes: strikes, worker: worker, dir: dir, log: log, die: process.KillSelf, freeze: freezer(), passes: map[plan.Step]int{},
	}
}

// pass is called when a delivery of key passes step. Other goroutines of the process go on until the signal lands,
// exactly as they would under a kill from outside.
func (g *gate) pass(step plan.Step, key, message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passes[step]++
	for _, k := range g.strikes {
		if k.Step != step || !g.hits(k, key) || !g.first(k) {
			continue
		}
		g.log.Add(eventlog.Entry{Kind: eventlog.Struck, Action: string(k.Do), Step: step, Key: key, Message: message})
		if k.Do == plan.Freeze {
			g.freeze()
			continue
		}
		g.die()
	}
}

func (g *gate) hits(k plan.Strike, key string) bool {
	if k.Key != "" {
		return k.Key == key
	}
	return k.Worker == g.worker && k.Nth == g.passes[k.Step]
}

// Marker is the file that shows that a strike happened; it holds the process id.
func Marker(dir string, strike int) string {
	return filepath.Join(dir, fmt.Sprintf("strike-%d", strike))
}

// first claims the strike for this process: the marker is made exactly once among all processes of the run. Without a
// marker there is no strike, and the run reports fewer than planned.
func (g *gate) first(k plan.Strike) bool {
	f, err := os.OpenFile(Marker(g.dir, k.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_, _ = fmt.Fprint(f, os.Getpid())
	_ = f.Close()
	return true
}

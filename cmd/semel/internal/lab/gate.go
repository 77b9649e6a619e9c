package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// gate is where a worker passes the named steps, and where it is killed at the planned passage.
type gate struct {
	kills  []Kill
	worker int
	dir    string // of the markers that make a kill happen once per run
	log    *journal
	die    func() // does not return

	mu     sync.Mutex
	passes map[Step]int
}

func newGate(kills []Kill, worker int, dir string, log *journal) *gate {
	return &gate{kills: kills, worker: worker, dir: dir, log: log, die: killSelf, passes: map[Step]int{}}
}

// pass is called when a delivery of key passes step. Other goroutines of the process go on until the signal lands,
// exactly as they would under a kill from outside.
func (g *gate) pass(step Step, key, message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passes[step]++
	for _, k := range g.kills {
		if k.Step != step || !g.hits(k, key) || !g.first(k) {
			continue
		}
		g.log.add(Entry{Kind: noteKilled, Step: step, Key: key, Message: message})
		g.die()
	}
}

func (g *gate) hits(k Kill, key string) bool {
	if k.Key != "" {
		return k.Key == key
	}
	return k.Worker == g.worker && k.Nth == g.passes[k.Step]
}

// first claims the kill for this process: the marker is made exactly once among all processes of the run.
func (g *gate) first(k Kill) bool {
	f, err := os.OpenFile(filepath.Join(g.dir, fmt.Sprintf("kill-%d", k.ID)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false
	}
	if err != nil {
		return false // no marker, no kill: the run reports fewer kills than planned
	}
	_ = f.Close()
	return true
}

// killSelf sends SIGKILL to the own process and never returns.
func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

package semellambda

import (
	"slices"
	"sync"
	"time"
)

// need learns how much time one message needs, run and commit, from those that were handled last in this process. It may
// be used by several goroutines at once.
type need struct {
	mu    sync.Mutex
	last  [512]time.Duration
	count int
}

func (n *need) observe(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[n.count%len(n.last)] = d
	n.count++
}

// forget begins anew: what was learnt left no time to begin anything.
func (n *need) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count = 0
}

// p99 is the 99th percentile of what was observed; 0 = nothing was.
func (n *need) p99() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := slices.Clone(n.last[:min(n.count, len(n.last))])
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(99*len(known)+99)/100-1]
}

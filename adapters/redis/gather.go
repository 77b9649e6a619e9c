package redis

import (
	"context"
	"slices"
	"sync"
)

// maxGathered is the most items of a call that goes together with calls of others. Larger ones are a batch already.
const maxGathered = 16

// maxFlushes is how many gathered calls of a lane are under way at once.
const maxFlushes = 2

// lane gathers small calls on one shard: while some are under way the next ones wait, and go together.
type lane struct {
	mu      sync.Mutex
	waiting []*gathered
	flushes int
}

// gathered is a call that waits. Its items are copies: a caller that gives up leaves them to the flush.
type gathered struct {
	ctx   context.Context
	items []*item
	done  chan struct{}
}

// gather runs items of one shard together with those of other callers. It returns when they are decided, or when ctx is
// done; then their outcome is unknown.
func (s *Store) gather(ctx context.Context, shard int, items []*item) {
	g := &gathered{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
	for _, i := range items {
		g.items = append(g.items, new(*i))
	}
	l := &s.lanes[shard]
	l.mu.Lock()
	l.waiting = append(l.waiting, g)
	if l.flushes < maxFlushes {
		l.flushes++
		go s.flush(shard)
	}
	l.mu.Unlock()
	select {
	case <-g.done:
		for n, i := range items {
			*i = *g.items[n]
		}
	case <-ctx.Done():
		for _, i := range items {
			i.n, i.raw, i.err = 0, nil, context.Cause(ctx)
		}
	}
}

// flush runs what waits, until nothing does.
func (s *Store) flush(shard int) {
	for {
		calls, items := s.lanes[shard].take()
		if len(calls) == 0 {
			return
		}
		s.runOn(calls[0].ctx, shard, items)
		for _, c := range calls {
			close(c.done)
		}
	}
}

// take takes the calls that fit into one script, and none that has a key of another one.
func (l *lane) take() (calls []*gathered, items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[[32]byte]bool{}
	l.waiting = slices.DeleteFunc(l.waiting, func(g *gathered) bool {
		meets := func(i *item) bool { return taken[i.hash] }
		if len(items)+len(g.items) > maxItems || slices.ContainsFunc(g.items, meets) {
			return false
		}
		for _, i := range g.items {
			taken[i.hash] = true
		}
		calls, items = append(calls, g), append(items, g.items...)
		return true
	})
	if len(calls) == 0 {
		l.flushes--
	}
	return calls, items
}

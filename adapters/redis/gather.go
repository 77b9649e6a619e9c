package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// maxGathered is the most items of a call that goes together with calls of others. Larger ones are a batch already.
const maxGathered = 16

// lanes gather small calls of one script on one shard: while one is under way the next ones wait, and go together.
type lanes struct {
	mu sync.Mutex
	of map[lane]*queue
}

type lane struct {
	script *goredis.Script
	shard  int
}

type queue struct {
	waiting []*gathered
	busy    bool
}

// gathered is a call that waits. Its items are copies: a caller that gives up leaves them to the flush.
type gathered struct {
	ctx   context.Context
	items []*item
	done  chan struct{}
}

// gather runs a script on items of one shard, together with those of other callers. It returns when they are decided, or
// when ctx is done; then their outcome is unknown.
func (s *Store) gather(ctx context.Context, l lane, items []*item) {
	g := &gathered{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
	for _, i := range items {
		g.items = append(g.items, new(*i))
	}
	s.lanes.mu.Lock()
	if s.lanes.of == nil {
		s.lanes.of = map[lane]*queue{}
	}
	q := s.lanes.of[l]
	if q == nil {
		q = &queue{}
		s.lanes.of[l] = q
	}
	q.waiting = append(q.waiting, g)
	if !q.busy {
		q.busy = true
		go s.flush(l, q)
	}
	s.lanes.mu.Unlock()
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
func (s *Store) flush(l lane, q *queue) {
	for {
		s.lanes.mu.Lock()
		calls, items := q.take()
		q.busy = len(calls) > 0
		s.lanes.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		s.runOn(calls[0].ctx, l.script, l.shard, items, nil)
		for _, c := range calls {
			close(c.done)
		}
	}
}

// take takes the calls that fit into one script, and none that has a key of another one.
func (q *queue) take() (calls []*gathered, items []*item) {
	taken := map[[32]byte]bool{}
	left := q.waiting[:0:0]
	for _, g := range q.waiting {
		free := len(items)+len(g.items) <= maxItems
		for _, i := range g.items {
			free = free && !taken[i.hash]
		}
		if !free {
			left = append(left, g)
			continue
		}
		for _, i := range g.items {
			taken[i.hash] = true
		}
		calls, items = append(calls, g), append(items, g.items...)
	}
	q.waiting = left
	return calls, items
}

package cache

import (
	"container/list"

	"github.com/semel-dev/semel/driver"
)

// node is an entry with its position in the order of use.
type node struct {
	entry
	cost int64
	at   *list.Element
}

// lru keeps the most recently used entries, within both limits. It is not safe for concurrent use.
type lru struct {
	nodes map[driver.Key]*node
	order list.List // of *node, the last used first
	size  int
	bytes int64
	most  int64
}

func newLRU(size int, most int64) *lru {
	return &lru{nodes: map[driver.Key]*node{}, size: size, most: most}
}

func (l *lru) used(n *node) { l.order.MoveToFront(n.at) }

// put adds an entry, or replaces the one of its key. An entry larger than the limit in bytes is not kept.
func (l *lru) put(k driver.Key, e *entry, cost int64) {
	if n := l.nodes[k]; n != nil {
		l.bytes += cost - n.cost
		n.entry, n.cost = *e, cost
		l.used(n)
	} else {
		n = &node{entry: *e, cost: cost}
		n.at = l.order.PushFront(n)
		l.nodes[k] = n
		l.bytes += cost
	}
	if cost > l.most {
		l.remove(l.nodes[k])
	}
	for len(l.nodes) > l.size || l.bytes > l.most {
		l.remove(l.order.Back().Value.(*node))
	}
}

func (l *lru) remove(n *node) {
	l.order.Remove(n.at)
	delete(l.nodes, n.key)
	l.bytes -= n.cost
}

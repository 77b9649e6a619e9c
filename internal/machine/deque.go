package machine

// deque is a queue of items, with a prepend.
type deque struct {
	items []*Item
	at    int
}

func (d *deque) len() int { return len(d.items) - d.at }

// first is the item that pop takes next.
func (d *deque) first() *Item { return d.items[d.at] }

func (d *deque) push(it *Item) {
	if d.at > 64 && 2*d.at > len(d.items) {
		d.items, d.at = d.items[:copy(d.items, d.items[d.at:])], 0
	}
	d.items = append(d.items, it)
}

// prepend puts items back in their order.
func (d *deque) prepend(its []*Item) {
	if d.at >= len(its) {
		d.at -= len(its)
		copy(d.items[d.at:], its)
		return
	}
	n := make([]*Item, 0, len(its)+d.len()+8)
	n = append(n, its...)
	d.items, d.at = append(n, d.items[d.at:]...), 0
}

func (d *deque) pop() *Item {
	it := d.items[d.at]
	d.items[d.at] = nil
	d.at++
	return it
}

func (d *deque) remove(it *Item) {
	for i := d.at; i < len(d.items); i++ {
		if d.items[i] == it {
			d.items = append(d.items[:i], d.items[i+1:]...)
			return
		}
	}
}

// buffer has the slices of one kind of flush. One such flush is in flight at a time, so its slices are reused, but not after
// an error: an adapter that gave up on its context may still be reading them.
type buffer[T any] struct {
	items []*Item
	parts []T
}

// take returns empty slices with room for n.
func (b *buffer[T]) take(n int) ([]*Item, []T) {
	items, parts := b.items[:0], b.parts[:0]
	b.items, b.parts = nil, nil
	if cap(items) < n || cap(parts) < n {
		items, parts = make([]*Item, 0, n), make([]T, 0, n)
	}
	return items, parts
}

// put takes them back after a flush without an error.
func (b *buffer[T]) put(items []*Item, parts []T, err error) {
	if err == nil {
		clear(items)
		clear(parts)
		b.items, b.parts = items, parts
	}
}

package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/driver"
)

// part is one assignment of a partition. A partition that is assigned again gets a new part, so receipts of the earlier
// assignment are Lost. Queue.mu guards it.
type part struct {
	id      int32
	revoked bool
	// open are the messages from the first that is not settled on, by offset. Offsets have gaps: compaction, transactions.
	open []*record
	// low is the position to commit: behind the last message that was settled with all before it. next is behind the last
	// message that arrived.
	low  kgo.EpochOffset
	next int64
	// committed is the position that the broker confirmed, and uncommitted how many messages are between it and low.
	committed   int64
	uncommitted int
	bytes       int // of messages that are not settled
	// waiting are the messages behind an earlier one of their key that is not settled.
	waiting map[string][]*record
	paused  bool
}

// record is one message of a part.
type record struct {
	part    *part
	msg     driver.Message // without its body when it is settled
	pos     driver.Position
	size    int
	settled bool
	delayed bool
	holder  *receipt // of the delivery that has it; nil if none
}

// receipt is a delivery's handle: its address is the driver.Delivery's Receipt.
type receipt struct {
	q       *Queue
	r       *record
	settled driver.Action // from 1
}

func newPart(id int32, from int64) *part {
	return &part{id: id, low: kgo.EpochOffset{Epoch: -1, Offset: from}, next: from, committed: from, waiting: map[string][]*record{}}
}

// add takes a message that arrived. It reports whether the message can be delivered: no earlier one of its key is open.
func (p *part) add(r *record) bool {
	r.part = p
	p.open = append(p.open, r)
	p.next = r.pos.Offset + 1
	p.bytes += r.size
	if r.msg.Group == "" {
		return true
	}
	queue, gated := p.waiting[r.msg.Group]
	if gated {
		p.waiting[r.msg.Group] = append(queue, r)
		return false
	}
	p.waiting[r.msg.Group] = nil
	return true
}

// skip moves over an offset that carries no message, such as the end of a transaction.
func (p *part) skip(offset int64, epoch int32) {
	if p.next = offset + 1; len(p.open) == 0 {
		p.low = kgo.EpochOffset{Epoch: epoch, Offset: p.next}
		return
	}
	p.open = append(p.open, &record{part: p, pos: driver.Position{Offset: offset, Epoch: epoch}, settled: true})
}

// settle ends a message and returns the next one of its key, if there is one.
func (p *part) settle(r *record) (next *record) {
	r.settled, r.holder = true, nil
	p.bytes -= r.size
	if group := r.msg.Group; group != "" {
		if queue := p.waiting[group]; len(queue) > 0 {
			next, p.waiting[group] = queue[0], queue[1:]
		} else {
			delete(p.waiting, group)
		}
	}
	r.msg = driver.Message{}
	for len(p.open) > 0 && p.open[0].settled {
		p.low = kgo.EpochOffset{Epoch: p.open[0].pos.Epoch, Offset: p.open[0].pos.Offset + 1}
		p.open[0] = nil
		p.open = p.open[1:]
		p.uncommitted++
	}
	if len(p.open) == 0 {
		p.open = nil
	}
	return next
}

// held is how many messages a crash of the process would have redelivered at most.
func (p *part) held() int { return len(p.open) + p.uncommitted }

// full reports that the partition is to be paused, and slack that it is to be resumed.
func (p *part) full(window int) bool { return p.held() >= window || p.bytes >= windowBytes }

func (p *part) slack(window int) bool { return p.held() <= window/2 && p.bytes <= windowBytes/2 }

// counts returns how many messages of the part can be delivered, are delivered, and are delayed; oldest is when the first of
// them was sent.
func (p *part) counts() (visible, inFlight, delayed int64, oldest time.Time) {
	for _, r := range p.open {
		switch {
		case r.settled:
			continue
		case r.holder != nil:
			inFlight++
		case r.delayed:
			delayed++
		default:
			visible++
		}
		if oldest.IsZero() || r.msg.SentAt.Before(oldest) {
			oldest = r.msg.SentAt
		}
	}
	return visible, inFlight, delayed, oldest
}

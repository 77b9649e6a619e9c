package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// Stats counts what the consumer has left. The numbers are approximate: the server counts a returned message as in flight
// until it is delivered again, so messages that wait for their time are among those.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	s.Approximate = true
	is := q.now()
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return s, q.explain("read", err)
	}
	c, err := stream.Consumer(ctx, q.o.Consumer)
	if err != nil {
		return s, q.explain("read", err)
	}
	state, info := stream.CachedInfo().State, c.CachedInfo()
	s.InFlight, s.Visible = int64(info.NumAckPending), int64(info.NumPending)
	if is.workQueue() {
		// The consumer's own number follows the stream's a moment later.
		s.Visible = max(int64(state.Msgs)-s.InFlight, 0)
	}
	first := state.FirstSeq
	if !is.workQueue() {
		first = max(first, info.AckFloor.Stream+1)
	}
	oldest, err := q.next(ctx, stream, &is, first)
	if err != nil {
		return s, err
	}
	if oldest != nil && s.Visible+s.InFlight == 0 && oldest.Sequence > info.Delivered.Stream {
		s.Visible = 1
	}
	if oldest != nil && s.Visible+s.InFlight > 0 {
		s.Oldest = max(time.Since(oldest.Time), time.Nanosecond)
	}
	if box, ok := q.box.(*deadLetters); ok {
		s.Letters, err = box.count(ctx)
	}
	return s, err
}

// next is the first message of the consumer at a sequence or behind it; nil if there is none.
func (q *Queue) next(ctx context.Context, stream jetstream.Stream, is *settings, seq uint64) (*jetstream.RawStreamMsg, error) {
	filters := is.filters()
	if len(filters) == 0 {
		filters = []string{">"}
	}
	var first *jetstream.RawStreamMsg
	for _, f := range filters {
		m, err := stream.GetMsg(ctx, max(seq, 1), jetstream.WithGetMsgSubject(f))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, q.explain("read a message of", err)
		}
		if first == nil || m.Sequence < first.Sequence {
			first = m
		}
	}
	return first, nil
}

// Peek shows up to limit messages without receiving them, the oldest first; those in flight, too. Of a stream that keeps
// acknowledged messages it shows what is behind the first message that is not acknowledged.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	is := q.now()
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, q.explain("peek into", err)
	}
	c, err := stream.Consumer(ctx, q.o.Consumer)
	if err != nil {
		return nil, q.explain("peek into", err)
	}
	seq := c.CachedInfo().AckFloor.Stream + 1
	if is.workQueue() {
		seq = stream.CachedInfo().State.FirstSeq
	}
	var out []driver.Delivery
	for len(out) < limit {
		m, err := q.next(ctx, stream, &is, seq)
		if err != nil || m == nil {
			return out, err
		}
		seq = m.Sequence + 1
		msg, _ := q.unpack(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Time)
		msg.ID = q.idOf(&msg, m.Sequence)
		out = append(out, driver.Delivery{Message: msg})
	}
	return out, nil
}

// Purge removes every message of the consumer, those in flight too. It refuses where other consumers of the stream would
// lose theirs.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	is := q.now()
	filters := is.filters()
	if is.stream.Retention != jetstream.WorkQueuePolicy {
		return 0, fmt.Errorf("nats: purge %s: other consumers of stream %q would lose its messages, because its retention is not work queue: "+
			"acknowledge them by a worker, or nats stream purge: %w", q.name(), q.stream, driver.ErrUnsupported)
	}
	if len(filters) == 0 {
		filters = []string{""}
	}
	var n int64
	for _, f := range filters {
		req, _ := json.Marshal(map[string]string{"filter": f}) // never fails
		m, err := q.nc.RequestWithContext(ctx, q.api+"STREAM.PURGE."+q.stream, req)
		if err != nil {
			return n, q.explain("purge", err)
		}
		var res struct {
			Error  *jetstream.APIError `json:"error"`
			Purged int64               `json:"purged"`
		}
		if err := json.Unmarshal(m.Data, &res); err != nil {
			return n, q.explain("purge", err)
		}
		if res.Error != nil {
			return n, q.explain("purge", res.Error)
		}
		n += res.Purged
	}
	return n, nil
}

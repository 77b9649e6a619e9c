package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// Send publishes messages and waits until the server has acknowledged all of them. A message that can never be stored (no
// subject, larger than the server takes, due after the stream has dropped it) is refused before the first is published.
// Messages of one call may be stored in another order if the connection fails in between.
func (q *Queue) Send(ctx context.Context, ms ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nats: send to %s: %w", q.name(), err)
	}
	out := make([]*nats.Msg, len(ms))
	for i := range ms {
		var err error
		if out[i], err = q.pack(&ms[i], q.is.Load()); err != nil {
			return fmt.Errorf("nats: send to %s: message %d: %w", q.name(), i, err)
		}
	}
	if err := q.publish(ctx, out); err != nil {
		return fmt.Errorf("nats: send to %s: %w", q.name(), err)
	}
	return nil
}

// publish sends messages and waits for their acknowledgements. The client sends at most 4,000 messages ahead of these.
func (q *Queue) publish(ctx context.Context, ms []*nats.Msg) error {
	acks := make([]jetstream.PubAckFuture, len(ms))
	for i, m := range ms {
		var err error
		if acks[i], err = q.js.PublishMsgAsync(m, jetstream.WithStallWait(q.o.CallTimeout)); err != nil {
			return explain(q.nc, "publish", err)
		}
	}
	for i, f := range acks {
		select {
		case ack := <-f.Ok():
			if ack.Stream != q.stream {
				return fmt.Errorf("message %d: its subject is of stream %q, and not of %q: fix subject= in the URL", i, ack.Stream, q.stream)
			}
		case err := <-f.Err():
			return explain(q.nc, fmt.Sprintf("publish message %d", i), err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pack makes the form in which a message travels.
func (q *Queue) pack(m *driver.Message, is *settings) (*nats.Msg, error) {
	subject := m.Header(headerSubject)
	if subject == "" || wild(subject) || !matchesAny(is.stream.Subjects, subject) { // or that of another stream
		subject = q.o.Subject
	}
	if subject == "" || wild(subject) {
		return nil, fmt.Errorf("stream %q keeps several subjects (%s): name one (Options.Subject, subject= in a URL, or header %s)",
			q.stream, strings.Join(is.stream.Subjects, ", "), headerSubject)
	}
	out := &nats.Msg{Subject: subject, Data: m.Body, Header: nats.Header{}}
	if err := writeHeaders(out.Header, m); err != nil {
		return nil, err
	}
	if q.o.Dedup && m.ID != "" && clean(m.ID) {
		out.Header.Set(nats.MsgIdHdr, m.ID)
	}
	if m.Delay > 0 {
		if is.stream.MaxAge > 0 && m.Delay >= is.stream.MaxAge {
			return nil, fmt.Errorf("its delay of %v is not shorter than the stream's MaxAge (%v): it would be dropped before it is due", m.Delay, is.stream.MaxAge)
		}
		out.Header.Set(headerDue, strconv.FormatInt(time.Now().Add(m.Delay).UnixMilli(), 10))
	}
	most := q.nc.MaxPayload()
	if is.stream.MaxMsgSize > 0 {
		most = min(most, int64(is.stream.MaxMsgSize))
	}
	if size := int64(out.Size() - len(out.Subject)); size > most {
		return nil, fmt.Errorf("it has %d bytes with its headers, and the server takes %d (max_payload, max_msg_size)", size, most)
	}
	return out, nil
}

package nats

import (
	"context"
	"errors"
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
		if out[i], err = q.pack(&ms[i]); err != nil {
			return fmt.Errorf("nats: send to %s: message %d: %w", q.name(), i, err)
		}
	}
	acks := make([]jetstream.PubAckFuture, 0, len(out))
	var errs []error
	for _, m := range out {
		f, err := q.js.PublishMsgAsync(m, jetstream.WithStallWait(q.o.CallTimeout))
		if err != nil {
			errs = append(errs, err)
			break
		}
		acks = append(acks, f)
	}
	for _, f := range acks {
		select {
		case ack := <-f.Ok():
			if ack.Stream != q.stream {
				errs = append(errs, fmt.Errorf("subject %q is of stream %q: fix subject= in the URL", f.Msg().Subject, ack.Stream))
			}
		case err := <-f.Err():
			errs = append(errs, err)
		case <-ctx.Done():
			return fmt.Errorf("nats: send to %s: %w", q.name(), ctx.Err())
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nats: send to %s: %d of %d messages have failed: %w", q.name(), len(out)-len(acks)+len(errs), len(out),
			explain(q.nc, "publish", errs[0]))
	}
	return nil
}

// pack makes the form in which a message travels.
func (q *Queue) pack(m *driver.Message) (*nats.Msg, error) {
	is := q.now()
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
		return nil, fmt.Errorf("it has %d bytes with its headers, and the server takes %d (max_payload, max_msg_size): %w", size, most, errTooLarge)
	}
	return out, nil
}

var errTooLarge = errors.New("message too large")

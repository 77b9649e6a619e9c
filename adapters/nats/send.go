package nats

import (
	"bytes"
	"context"
	"encoding/json"
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

// publish sends messages, at most maxOutstanding ahead of their acknowledgements, and waits for all of these. Each message has a
// reply subject of its own, so that nothing but its acknowledgement counts for it. The futures of the client's PublishAsync
// would take half as much processor time again.
func (q *Queue) publish(ctx context.Context, ms []*nats.Msg) error {
	in := make(chan *nats.Msg, min(len(ms), maxOutstanding)+16)
	inbox := q.nc.NewInbox() + "."
	sub, err := q.nc.ChanSubscribe(inbox+"*", in)
	if err != nil {
		return q.explain("publish for", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	silence := time.NewTimer(q.o.CallTimeout)
	defer silence.Stop()
	acked := make([]bool, len(ms))
	for sent, done := 0, 0; done < len(ms); {
		for ; sent < len(ms) && sent-done < maxOutstanding; sent++ {
			ms[sent].Reply = inbox + strconv.Itoa(sent)
			if err := q.nc.PublishMsg(ms[sent]); err != nil {
				return q.explain("publish for", err)
			}
		}
		select {
		case reply := <-in:
			i, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, inbox))
			if err != nil || i < 0 || i >= len(ms) || acked[i] {
				continue
			}
			if err := q.acknowledged(reply); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			acked[i], done = true, done+1
			silence.Reset(q.o.CallTimeout)
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			doing := fmt.Sprintf("await %d of %d acknowledgements of", len(ms)-done, len(ms))
			return q.explain(doing, context.DeadlineExceeded)
		}
	}
	return nil
}

// acknowledged reads the server's reply to a message.
func (q *Queue) acknowledged(reply *nats.Msg) error {
	if reply.Header.Get("Status") == "503" {
		return q.explain("publish for", nats.ErrNoResponders)
	}
	if bytes.HasPrefix(reply.Data, []byte(`{"stream":"`+q.stream+`"`)) && bytes.Contains(reply.Data, []byte(`"seq":`)) {
		return nil // as nearly always; an error comes first
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.PubAck
	}
	switch err := json.Unmarshal(reply.Data, &ack); {
	case err != nil:
		return fmt.Errorf("read its acknowledgement %q: %w", reply.Data, err)
	case ack.Error != nil:
		return ack.Error
	case ack.Stream != q.stream || ack.Sequence == 0:
		return fmt.Errorf("its subject is of stream %q, and not of %q: fix subject= in the URL", ack.Stream, q.stream)
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
	if m.Delay > 0 {
		if is.stream.MaxAge > 0 && m.Delay >= is.stream.MaxAge {
			return nil, fmt.Errorf("its delay of %v is not shorter than the stream's MaxAge (%v): it would be dropped before it is due",
				m.Delay, is.stream.MaxAge)
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

package nats

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// CreateOptions of [Create]. The zero value is the documented default.
type CreateOptions struct {
	// Options name the consumer. Subject is that of a stream that is made, and defaults to the stream's name. In an existing
	// stream it is the filter of a consumer that is made.
	Options
	// Visibility is the AckWait of a consumer that is made. Defaults to 30 s.
	Visibility time.Duration
	// Retention is the MaxAge of a stream that is made. Defaults to forever.
	Retention time.Duration
	// Replicas of the stream. Defaults to 1.
	Replicas int
}

// maxAckPending bounds what a consumer that Create makes has in flight, delayed messages included. JetStream's own default of
// 1,000 stops the delivery of everything while 1,000 messages wait for their next attempt.
const maxAckPending = 100_000

// Create makes what is missing of a stream (a work queue on disk, which refuses messages rather than drop old ones) and its
// durable consumer (explicit acknowledgements, no MaxDeliver). It leaves what exists as it is.
func Create(ctx context.Context, nc *nats.Conn, stream string, o CreateOptions) error {
	q, err := connect(nc, stream, o.Options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*q.o.CallTimeout)
	defer cancel()
	filter := o.Subject
	s, err := q.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		filter = ""
		s, err = q.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: stream, Subjects: []string{cmp.Or(o.Subject, stream)}, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, MaxAge: o.Retention,
			Replicas: max(o.Replicas, 1), AllowDirect: true,
		})
	}
	if err != nil {
		return q.explain("make the stream of", err)
	}
	if _, err = s.Consumer(ctx, q.o.Consumer); errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: q.o.Consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: cmp.Or(o.Visibility, 30*time.Second), MaxDeliver: -1,
			MaxAckPending: maxAckPending, DeliverPolicy: jetstream.DeliverAllPolicy, FilterSubject: filter,
		})
	}
	if err != nil {
		return q.explain("make", err)
	}
	return nil
}

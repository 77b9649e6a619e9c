package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// deadLetters keeps the dead letters of a queue in a key-value bucket: CONSUMER.ID has the dead letter as JSON. One that is
// larger than the server takes is cut: CONSUMER.ID says in how many pieces, which are in CONSUMER.ID.0 and so on.
type deadLetters struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream // the bucket's
	prefix string           // of keys: the consumer
	most   int              // bytes of one value
	queue  string
	clock  func() time.Time
}

// stored is the value of a dead letter. Its message is apart, because bytes of any kind must come back as they were.
type stored struct {
	DeadLetter driver.DeadLetter `json:"dead_letter"`
	Version    []byte            `json:"version,omitempty"` // any bytes
	Raw        []byte            `json:"raw,omitempty"`     // of the key: any bytes
	Reason     []byte            `json:"reason,omitempty"`
	Pieces     int               `json:"pieces,omitempty"`
}

// openBox opens the bucket of a queue; nil if there is none.
func openBox(ctx context.Context, q *Queue) (*deadLetters, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	what := fmt.Sprintf("nats: open bucket %q for dead letters", q.o.Bucket)
	kv, err := q.js.KeyValue(ctx, q.o.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil //nolint:nilnil // a queue may be without
	}
	if err != nil {
		return nil, explain(q.nc, what, err)
	}
	stream, err := q.js.Stream(ctx, "KV_"+q.o.Bucket)
	if err != nil {
		return nil, explain(q.nc, what, err)
	}
	most := int(q.nc.MaxPayload()) - 1024 // headers of the request count, too
	if n := stream.CachedInfo().Config.MaxMsgSize; n > 0 {
		most = min(most, int(n)-1024)
	}
	return &deadLetters{kv: kv, stream: stream, prefix: token(q.o.Consumer), most: most, queue: q.name(), clock: q.o.clock}, nil
}

func (b *deadLetters) key(id string) string { return b.prefix + "." + token(id) }

// PutDeadLetter writes a dead letter once for each id.
func (b *deadLetters) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("nats: put dead letter: it has no ID")
	}
	l.DeadAt = b.clock()
	if l.Message.Queue == "" {
		l.Message.Queue = b.queue
	}
	value, err := encode(l)
	if err == nil {
		value, err = b.cut(ctx, b.key(l.ID), value)
	}
	if err == nil {
		_, err = b.kv.Create(ctx, b.key(l.ID), value)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("nats: put dead letter %s into bucket %q: %w", l.ID, b.kv.Bucket(), err)
	}
	return nil
}

// cut writes the pieces of a value that is too large, and returns what to write in its place.
func (b *deadLetters) cut(ctx context.Context, key string, value []byte) ([]byte, error) {
	if len(value) <= b.most {
		return value, nil
	}
	n := 0
	for ; len(value) > 0; n++ {
		size := min(len(value), b.most)
		if _, err := b.kv.Put(ctx, key+"."+strconv.Itoa(n), value[:size]); err != nil {
			return nil, err
		}
		value = value[size:]
	}
	return json.Marshal(stored{Pieces: n})
}

func encode(l driver.DeadLetter) ([]byte, error) {
	s := stored{DeadLetter: l, Version: []byte(l.Version), Raw: []byte(l.Key.Raw), Reason: []byte(l.Reason)}
	s.DeadLetter.Version, s.DeadLetter.Key.Raw, s.DeadLetter.Reason = "", "", ""
	return json.Marshal(s)
}

// decode reads a value, and its pieces where it was cut.
func (b *deadLetters) decode(ctx context.Context, key string, value []byte) (l driver.DeadLetter, err error) {
	var s stored
	if err := json.Unmarshal(value, &s); err != nil {
		return l, fmt.Errorf("nats: read dead letter %s of bucket %q: %w", key, b.kv.Bucket(), err)
	}
	if s.Pieces > 0 {
		var whole []byte
		for i := range s.Pieces {
			e, err := b.kv.Get(ctx, key+"."+strconv.Itoa(i))
			if err != nil {
				return l, fmt.Errorf("nats: read piece %d of dead letter %s of bucket %q: %w", i, key, b.kv.Bucket(), err)
			}
			whole = append(whole, e.Value()...)
		}
		return b.decode(ctx, key, whole)
	}
	s.DeadLetter.Version, s.DeadLetter.Key.Raw, s.DeadLetter.Reason = driver.Version(s.Version), string(s.Raw), string(s.Reason)
	return s.DeadLetter, nil
}

// DeadLetters lists up to limit dead letters (0 = all), the oldest first.
func (b *deadLetters) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	w, err := b.kv.Watch(ctx, b.prefix+".*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("nats: list the dead letters of bucket %q: %w", b.kv.Bucket(), err)
	}
	defer func() { _ = w.Stop() }()
	var out []driver.DeadLetter
	for limit == 0 || len(out) < limit {
		select {
		case e := <-w.Updates():
			if e == nil { // that is all for now
				return out, ctx.Err()
			}
			l, err := b.decode(ctx, e.Key(), e.Value())
			if err != nil {
				return nil, err
			}
			out = append(out, l)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// DeadLetter returns one dead letter.
func (b *deadLetters) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	e, err := b.kv.Get(ctx, b.key(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return l, false, nil
	}
	if err != nil {
		return l, false, fmt.Errorf("nats: read dead letter %s of bucket %q: %w", id, b.kv.Bucket(), err)
	}
	l, err = b.decode(ctx, e.Key(), e.Value())
	return l, err == nil, err
}

// DeleteDeadLetter removes a dead letter. It purges the stream, so that no marker of the deletion remains.
func (b *deadLetters) DeleteDeadLetter(ctx context.Context, id string) error {
	for _, key := range [...]string{b.key(id), b.key(id) + ".*"} {
		if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.kv.Bucket()+"."+key)); err != nil {
			return fmt.Errorf("nats: delete dead letter %s of bucket %q: %w", id, b.kv.Bucket(), err)
		}
	}
	return nil
}

// count is how many dead letters there are.
func (b *deadLetters) count(ctx context.Context) (int64, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter("$KV."+b.kv.Bucket()+"."+b.prefix+".*"))
	if err != nil {
		return 0, fmt.Errorf("nats: count the dead letters of bucket %q: %w", b.kv.Bucket(), err)
	}
	return int64(len(info.State.Subjects)), nil
}

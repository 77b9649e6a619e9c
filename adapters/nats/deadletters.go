package nats

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// deadLetters keeps the dead letters of a queue in a key-value bucket. CONSUMER.ID has the dead letter as JSON, behind the number
// of its further pieces (a uvarint). One that is larger than the server takes has its other pieces under CONSUMER.ID.1 and so on.
type deadLetters struct {
	q      *Queue
	kv     jetstream.KeyValue
	stream jetstream.Stream // the bucket's
	prefix string           // of keys: the consumer
}

// stored is a dead letter with what JSON would change apart: texts of any bytes.
type stored struct {
	DeadLetter           driver.DeadLetter
	Version, Raw, Reason []byte
}

// openBox opens the bucket of a queue; nil if there is none.
func openBox(ctx context.Context, q *Queue) (*deadLetters, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	kv, err := q.js.KeyValue(ctx, q.o.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil //nolint:nilnil // a queue may be without
	}
	b := &deadLetters{q: q, kv: kv, prefix: token(q.o.Consumer)}
	if err == nil {
		b.stream, err = q.js.Stream(ctx, "KV_"+q.o.Bucket)
	}
	if err != nil {
		return nil, q.explain("open the bucket for dead letters of", err)
	}
	return b, nil
}

func (b *deadLetters) key(id string) string { return b.prefix + "." + token(id) }

func (b *deadLetters) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nats: %s in bucket %q: %w", doing, b.kv.Bucket(), err)
}

// PutDeadLetter writes a dead letter once for each id.
func (b *deadLetters) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("nats: put dead letter: it has no ID")
	}
	l.DeadAt = b.q.o.clock()
	l.Message.Queue = cmp.Or(l.Message.Queue, b.q.name())
	s := stored{l, []byte(l.Version), []byte(l.Key.Raw), []byte(l.Reason)}
	s.DeadLetter.Version, s.DeadLetter.Key.Raw, s.DeadLetter.Reason = "", "", ""
	text, err := json.Marshal(s)
	pieces := slices.Collect(slices.Chunk(text, max(int(b.q.nc.MaxPayload())-1024, 512))) // headers count, too
	for i := 1; i < len(pieces) && err == nil; i++ {
		_, err = b.kv.Put(ctx, piece(b.key(l.ID), i), pieces[i])
	}
	if err == nil {
		first := binary.AppendUvarint(nil, uint64(len(pieces)-1))
		_, err = b.kv.Create(ctx, b.key(l.ID), append(first, pieces[0]...))
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return b.failed("put dead letter "+l.ID, err)
}

func piece(key string, n int) string { return key + "." + strconv.Itoa(n) }

// decode reads an entry with its further pieces.
func (b *deadLetters) decode(ctx context.Context, e jetstream.KeyValueEntry) (driver.DeadLetter, error) {
	n, size := binary.Uvarint(e.Value())
	text := slices.Clone(e.Value()[max(size, 0):])
	for i := range int(n) { //nolint:gosec // as it was written
		p, err := b.kv.Get(ctx, piece(e.Key(), i+1))
		if err != nil {
			return driver.DeadLetter{}, b.failed(fmt.Sprintf("read piece %d of dead letter %s", i+1, e.Key()), err)
		}
		text = append(text, p.Value()...)
	}
	var s stored
	err := json.Unmarshal(text, &s)
	l := s.DeadLetter
	l.Version, l.Key.Raw, l.Reason = driver.Version(s.Version), string(s.Raw), string(s.Reason)
	return l, b.failed("read dead letter "+e.Key(), err)
}

// DeadLetters lists up to limit dead letters (0 = all), the oldest first.
func (b *deadLetters) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	w, err := b.kv.Watch(ctx, b.prefix+".*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, b.failed("list the dead letters", err)
	}
	defer func() { _ = w.Stop() }()
	var out []driver.DeadLetter
	for limit == 0 || len(out) < limit {
		select {
		case e := <-w.Updates():
			if e == nil { // that is all for now
				return out, ctx.Err()
			}
			l, err := b.decode(ctx, e)
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
		return l, false, b.failed("read dead letter "+id, err)
	}
	l, err = b.decode(ctx, e)
	return l, err == nil, err
}

// DeleteDeadLetter removes a dead letter. It purges the stream, so that no marker of the deletion remains.
func (b *deadLetters) DeleteDeadLetter(ctx context.Context, id string) error {
	for _, key := range [...]string{b.key(id), b.key(id) + ".*"} {
		if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.kv.Bucket()+"."+key)); err != nil {
			return b.failed("delete dead letter "+id, err)
		}
	}
	return nil
}

// count returns how many dead letters there are.
func (b *deadLetters) count(ctx context.Context) (int64, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter("$KV."+b.kv.Bucket()+"."+b.prefix+".*"))
	if err != nil {
		return 0, b.failed("count the dead letters", err)
	}
	return int64(len(info.State.Subjects)), nil
}

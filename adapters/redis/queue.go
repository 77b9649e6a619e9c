package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// ErrNoQueue reports a queue that does not exist.
var ErrNoQueue = errors.New("no such queue")

// DefaultVisibility is how long a delivery is kept from others, unless CreateQueue says otherwise.
const DefaultVisibility = 30 * time.Second

// Group is the consumer group of every queue.
const Group = "semel"

var (
	// luaSettle are functions that the other scripts begin with.
	//go:embed lua/settle.lua
	luaSettle string
	//go:embed lua/queue.lua
	luaQueue string
	//go:embed lua/receive.lua
	luaReceive string

	queueScript   = goredis.NewScript(luaSettle + luaQueue)
	receiveScript = goredis.NewScript(luaSettle + luaReceive)
)

// Queue is a stream with one consumer group. Make it with [Store.Queue]; there is nothing to close.
type Queue struct {
	deadLetters
	consumer string
	visible  time.Duration
	search   search
	wake     redeliver.Wake // when there may be something for Receive
	watching atomic.Bool    // a call waits for new entries
}

// queues is the hash with the visibility of each queue in µs.
func (s *Store) queues() string { return "{" + s.prefix + "}:queues" }

// CreateQueue makes a queue. visible is how long its deliveries are kept from others (0 = [DefaultVisibility]). A queue that
// exists stays as it is.
func (s *Store) CreateQueue(ctx context.Context, name string, visible time.Duration) error {
	visible = cmp.Or(visible, DefaultVisibility)
	if name == "" || visible < time.Millisecond {
		return fmt.Errorf("redis: create queue %q: it needs a name, and a visibility of 1ms or more (it is %v)", name, visible)
	}
	err := s.client.HSetNX(ctx, s.queues(), name, visible.Microseconds()).Err()
	if err == nil {
		err = s.client.XGroupCreateMkStream(ctx, s.queueKeys(name)[0], Group, "0").Err()
	}
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create queue %q: %w", name, explain(err))
	}
	return nil
}

// Queue opens a queue, which has to exist: see [Store.CreateQueue]. A missing one is an [ErrNoQueue].
func (s *Store) Queue(ctx context.Context, name string) (*Queue, error) {
	visible, err := s.client.HGet(ctx, s.queues(), name).Int64()
	if errors.Is(err, goredis.Nil) {
		err = ErrNoQueue
	}
	if err != nil {
		return nil, fmt.Errorf("open queue %q with prefix %q: %w", name, s.prefix, explain(err))
	}
	host, _ := os.Hostname()
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	q := &Queue{deadLetters: s.deadLetters(name), visible: time.Duration(visible) * time.Microsecond, search: search{silence: silence}}
	q.consumer = fmt.Sprintf("%s%s-%d-%s", consumerPrefix, host, os.Getpid(), hex.EncodeToString(random[:]))
	return q, nil
}

// consumerPrefix begins the names of semel's consumers.
const consumerPrefix = "semel-"

// IsWorker reports whether a consumer of a group is semel's, by its name.
func IsWorker(consumer string) bool { return strings.HasPrefix(consumer, consumerPrefix) }

// Queues lists the names of the queues, sorted.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	names, err := s.client.HKeys(ctx, s.queues()).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", explain(err))
	}
	slices.Sort(names)
	return names, nil
}

// queueKeys are the names of a queue's keys, as the scripts take them. They are in one slot of a cluster.
func (s *Store) queueKeys(name string) []string {
	slot := s.slot(int(crc32.ChecksumIEEE([]byte(name))) % s.shards)
	return []string{slot + "q:" + name, slot + "delayed:" + name, slot + "dead:" + name, slot + "deadindex:" + name}
}

// Stream returns the key of the stream, for producers in other languages: XADD with a field body.
func (q *Queue) Stream() string { return q.keys[0] }

// Features describes the queue, with what Open found out about the server.
func (q *Queue) Features() driver.QueueFeatures {
	losses := q.s.server.losses("messages", "")
	return driver.QueueFeatures{
		Name: q.name, Kind: "redis", Visible: q.visible, Durable: len(losses) == 0, Caveats: losses,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, DeadLetters: true,
	}
}

// call runs verbs of the queue's script, and returns a value for each. An error of one verb is in its place.
func (q *deadLetters) call(ctx context.Context, verbs ...[]any) ([]any, error) {
	var out []any
	for chunk := range slices.Chunk(verbs, maxItems) {
		values, err := queueScript.Run(ctx, q.s.client, q.keys, slices.Concat(chunk...)...).Slice()
		if err == nil && len(values) != len(chunk) {
			err = fmt.Errorf("the script returned %d values for %d items", len(values), len(chunk))
		}
		if err != nil {
			return out, explain(err)
		}
		out = append(out, values...)
	}
	return out, nil
}

// maxHeaders bounds the headers of a message: Lua passes them as arguments.
const maxHeaders = 1000

// Send adds messages to the stream, those with a delay to the delayed ones.
func (q *Queue) Send(ctx context.Context, ms ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var late [][]any
	for i := range ms {
		if n := len(ms[i].Headers); n > maxHeaders {
			return fmt.Errorf("send to queue %q: message %d has %d headers, and can have %d", q.name, i, n, maxHeaders)
		}
	}
	_, err := q.s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := range ms {
			fields := pack(&ms[i], time.Now())
			if ms[i].Delay > 0 {
				late = append(late, slices.Concat([]any{"delay", ms[i].Delay.Microseconds(), len(fields) + 1, driver.NewMessageID()}, fields))
				continue
			}
			p.XAdd(ctx, &goredis.XAddArgs{Stream: q.keys[0], Values: fields})
		}
		return nil
	})
	if err == nil && len(late) > 0 {
		_, err = q.call(ctx, late...)
		q.delayed(0)
	}
	if err != nil {
		return fmt.Errorf("send to queue %q: %w", q.name, explain(err))
	}
	return nil
}

// The fields of an entry that are not headers. A producer that knows nothing of them sends messages that arrive well.
const (
	fieldBody   = "body"
	fieldID     = "semel-id"
	fieldGroup  = "semel-group"
	fieldSent   = "semel-sent"    // ms since 1970
	fieldCount  = "semel-count"   // deliveries of earlier entries of the message
	fieldHeader = "semel-header-" // begins the name of a header that would be another field
)

// pack makes the fields of a message.
func pack(m *driver.Message, now time.Time) []any {
	fields := []any{fieldID, cmp.Or(m.ID, driver.NewMessageID()), fieldBody, m.Body}
	if m.Group != "" {
		fields = append(fields, fieldGroup, m.Group)
	}
	if m.Delay > 0 {
		fields = append(fields, fieldSent, now.UnixMilli())
	}
	for name, value := range m.Headers {
		if name == fieldBody || strings.HasPrefix(name, "semel-") {
			name = fieldHeader + name
		}
		fields = append(fields, name, value)
	}
	return fields
}

// unpack reads an entry. before is how often earlier entries of the message were delivered.
func (q *Queue) unpack(id string, fields map[string]any) (m driver.Message, before int) {
	m = driver.Message{Queue: q.name, Headers: make(map[string]string, len(fields)), Body: []byte{}}
	sent, _, _ := strings.Cut(id, "-")
	for name, field := range fields {
		value, _ := field.(string)
		switch name {
		case fieldBody:
			m.Body = []byte(value)
		case fieldID:
			m.ID = value
		case fieldGroup:
			m.Group = value
		case fieldSent:
			sent = value
		case fieldCount:
			before, _ = strconv.Atoi(value)
		default:
			m.Headers[strings.TrimPrefix(name, fieldHeader)] = value
		}
	}
	if m.ID == "" {
		m.ID = "redis|" + q.keys[0] + "|" + id
	}
	if ms, err := strconv.ParseInt(sent, 10, 64); err == nil {
		m.SentAt = time.UnixMilli(ms)
	}
	return m, before
}

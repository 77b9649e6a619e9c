package place

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// makeRedisQueue makes the queue of a run, among its records if these are in the same Redis.
func (s *Setup) makeRedisQueue(ctx context.Context, p URLs, run string, visibility time.Duration) (raw string, err error) {
	if raw = p.Store; s.queue != s.store {
		if raw, err = s.makePrefix(ctx, s.queue, run); err != nil {
			return "", err
		}
	}
	raw = addParam(raw, "queue", QueueName)
	set := open.New(open.Options{})
	_, err = set.Create(ctx, "queue", raw, open.NewQueue{Visibility: visibility})
	return raw, errors.Join(err, set.Close())
}

// makePrefix makes the URL of a run on Redis: its keys have a prefix of their own.
func (s *Setup) makePrefix(ctx context.Context, at side, run string) (string, error) {
	first, err := open.RedisPrefix(at.url)
	if err != nil {
		return "", err
	}
	raw, err := open.WithRedisPrefix(at.url, first+ours+s.stem+"-"+run)
	if err != nil {
		return "", err
	}
	client, err := open.Redis("store", raw)
	if err != nil {
		return "", err
	}
	if err := errors.Join(client.Ping(ctx).Err(), client.Close()); err != nil { // what does not respond need not be cleaned up
		return "", open.Explain("store", raw, "open", err)
	}
	s.removes = append(s.removes, func(ctx context.Context) error { return removePrefix(ctx, raw) })
	return raw, nil
}

// removePrefix removes the keys of a run.
func removePrefix(ctx context.Context, raw string) (err error) {
	prefix, err := open.RedisPrefix(raw)
	if err != nil {
		return err
	}
	if !strings.Contains(prefix, ours) {
		return fmt.Errorf("the keys with prefix %s were not made by the lab: left alone", prefix)
	}
	client, err := open.Redis("store", raw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, "{"+prefix+"*", 1000).Result()
		if err == nil && len(keys) > 0 {
			err = client.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			return fmt.Errorf("remove the keys with prefix %s: %w", prefix, err)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// redisQueue opens the queue of the run.
func (o *opening) redisQueue(ctx context.Context) error {
	q, err := o.set().Queue(ctx, o.urls.Queue)
	if err != nil {
		return err
	}
	o.place.Queue = q.(*redis.Queue)
	return nil
}

// redis opens the records of the run.
func (o *opening) redis(ctx context.Context) error {
	prefix, err := open.RedisPrefix(o.urls.Store)
	if err != nil {
		return err
	}
	client, err := open.Redis("store", o.urls.Store)
	if err != nil {
		return err
	}
	o.place.closers = append(o.place.closers, client.Close)
	st, err := o.set().Store(ctx, o.urls.Store)
	if err != nil {
		return err
	}
	o.place.Store = st.(*redis.Store)
	o.place.Ledger, o.place.marks = redisLedger{client, "{" + prefix + "}:ledger"}, redisMarks{client, "{" + prefix + "}:mark:"}
	return nil
}

// redisLedger is the ledger as a hash: a field for each charge, whose name is drawn or is the effect key. Its effects do not
// commit with records: it is no TxLedger.
type redisLedger struct {
	client goredis.UniversalClient
	name   string
}

// Effects sorts by the clock, as those of itemLedger.
func (l redisLedger) Effects(ctx context.Context) (out []Effect, err error) {
	all, err := l.client.HGetAll(ctx, l.name).Result()
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	for _, text := range all {
		var e Effect
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Effect) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Key, b.Key))
	})
	for i := range out {
		out[i].ID = int64(i + 1)
	}
	return out, nil
}

func (l redisLedger) CountEffects(ctx context.Context) (int, error) {
	n, err := l.client.HLen(ctx, l.name).Result()
	if err != nil {
		return 0, fmt.Errorf("count the ledger: %w", err)
	}
	return int(n), nil
}

func (l redisLedger) AddEffect(ctx context.Context, e Effect, effectKey string) error {
	field := "drawn#" + rand.Text()
	if effectKey != "" {
		field = "key#" + effectKey
	}
	text, err := json.Marshal(e)
	if err == nil {
		err = l.client.HSetNX(ctx, l.name, field, text).Err()
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", e.Key, err)
	}
	return nil
}

// redisMarks are the marks as hashes with the fields status and at.
type redisMarks struct {
	client goredis.UniversalClient
	prefix string
}

// putMark has the arguments status, at, and the age in microseconds from which a mark gives way: -1 = never, 0 = always.
var putMark = goredis.NewScript(`local at = tonumber(redis.call('HGET', KEYS[1], 'at') or '-1')
local old = tonumber(ARGV[3])
if at >= 0 and (old < 0 or old > 0 and at >= tonumber(ARGV[2]) - old) then return 0 end
redis.call('HSET', KEYS[1], 'status', ARGV[1], 'at', ARGV[2])
return 1`)

func (m redisMarks) Get(ctx context.Context, id string) (string, error) {
	status, err := m.client.HGet(ctx, m.prefix+id, "status").Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return "", fmt.Errorf("read the mark of %s: %w", id, err)
	}
	return status, nil
}

func (m redisMarks) Add(ctx context.Context, id, status string) (bool, error) {
	return m.put(ctx, id, status, -1)
}

func (m redisMarks) Put(ctx context.Context, id, status string) error {
	_, err := m.put(ctx, id, status, 0)
	return err
}

func (m redisMarks) Take(ctx context.Context, id, status string, ttl time.Duration) (bool, error) {
	return m.put(ctx, id, status, max(ttl.Microseconds(), 1))
}

func (m redisMarks) Delete(ctx context.Context, id string) error {
	if err := m.client.Del(ctx, m.prefix+id).Err(); err != nil {
		return fmt.Errorf("mark %s: %w", id, err)
	}
	return nil
}

func (m redisMarks) put(ctx context.Context, id, status string, old int64) (bool, error) {
	wrote, err := putMark.Run(ctx, m.client, []string{m.prefix + id}, status, time.Now().UnixMicro(), old).Bool()
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", id, err)
	}
	return wrote, nil
}

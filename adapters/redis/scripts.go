package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// luaRecords is the script that makes all writes of records.
//
//go:embed lua/records.lua
var luaRecords string

// maxItems bounds the records of one script: while it runs, the server does nothing else.
const maxItems = 250

// The verbs of the script.
const (
	verbRead      = "read"
	verbClaim     = "claim"
	verbExtend    = "extend"
	verbComplete  = "complete"
	verbSwap      = "swap"
	verbDuplicate = "duplicate"
	verbJoined    = "joined"
)

// item is one record of a call.
type item struct {
	hash [32]byte
	key  *driver.Key        // nil when only the hash is known
	args []any              // for the script: a verb, and what it needs
	ack  *driver.Settlement // of a delivery in the same Redis; nil: none
	// decide returns the record afterwards (an absent one is removed), and whether to write it. more are fields of its side with
	// their values. See Store.swap.
	decide func(r driver.Record, now time.Time, drawn uint64) (after driver.Record, write bool, more []any)
	// The result of the script: n is a number, raw the record that is there (nil = none), err why neither is known.
	n     int64
	raw   []byte
	err   error
	now   time.Time
	floor uint64
	score float64 // where it was found
}

func newItem(k *driver.Key, args ...any) *item { return &item{hash: k.Hash(), key: k, args: args} }

// hashSize is how much of a key's hash is in the names of its record and side. The key itself is compared besides.
const hashSize = 16

func (s *Store) shard(i *item) int { return (int(i.hash[0])<<8 | int(i.hash[1])) % s.shards }

// slot begins the names of a shard's keys: one slot of a cluster.
func (s *Store) slot(shard int) string { return fmt.Sprintf("{%s:%d}:", s.prefix, shard) }

// name is that of an item's record (kind r) or side (x).
func (s *Store) name(kind string, i *item) string {
	return s.slot(s.shard(i)) + kind + ":" + string(i.hash[:hashSize])
}

// run runs items, one call for each shard and maxItems, all at once. It writes the result of the script to each item.
func (s *Store) run(ctx context.Context, items []*item) {
	shards := map[int][]*item{}
	for _, i := range items {
		n := s.shard(i)
		shards[n] = append(shards[n], i)
	}
	var wg sync.WaitGroup
	for shard, of := range shards {
		for chunk := range slices.Chunk(of, maxItems) {
			call := s.runOn
			if len(chunk) <= maxGathered {
				call = s.gather
			}
			if len(chunk) == len(items) {
				call(ctx, shard, chunk)
				return
			}
			wg.Go(func() { call(ctx, shard, chunk) })
		}
	}
	wg.Wait()
}

// runOn runs items of one shard.
func (s *Store) runOn(ctx context.Context, shard int, items []*item) {
	slot := s.slot(shard)
	keys, args := []string{slot + "floor", slot + "index", s.cases(shard, driver.FailedState), s.cases(shard, driver.Uncertain)}, []any(nil)
	for _, i := range items {
		joined := i.ack != nil && i.args[0] != verbRead
		if joined {
			args = append(args, verbJoined)
		}
		keys, args = append(keys, s.name("r", i)), append(args, i.args...)
		if verb := i.args[0]; verb == verbSwap || verb == verbDuplicate {
			keys = append(keys, s.name("x", i))
		}
		if joined {
			settlement := settleArgs(i.ack)
			keys = append(keys, i.ack.Receipt.(*receipt).q.keys...)
			args = append(append(args, len(settlement)), settlement...)
		}
		i.n, i.raw, i.err = 0, nil, nil
	}
	reply, err := s.script.Run(ctx, s.client, keys, args...).Slice()
	if err == nil && len(reply) != len(items)+2 {
		err = fmt.Errorf("the script returned %d values for %d items", len(reply), len(items))
	}
	if err != nil {
		for _, i := range items {
			i.err = explain(err)
		}
		return
	}
	now, _ := reply[0].(int64)
	floor, _ := reply[1].(int64)
	for n, i := range items {
		i.now, i.floor = time.UnixMicro(now), uint64(floor) //nolint:gosec // below 2^53
		switch v := reply[n+2].(type) {
		case int64:
			i.n = v
		case string:
			i.raw = []byte(v)
		case error:
			i.err = fmt.Errorf("%w: its name in Redis is in use: %w", driver.ErrUnreadable, v)
		}
	}
}

// read reads the records of items.
func (s *Store) read(ctx context.Context, items ...*item) {
	for _, i := range items {
		i.args = []any{verbRead}
	}
	s.run(ctx, items)
}

// record reads the record that is there; the absent one when there is none.
func (i *item) record() (r driver.Record, err error) {
	if i.err != nil || i.raw == nil {
		return r, i.err
	}
	if r, err = decode(i.raw); err == nil && i.key != nil && r.Key != *i.key {
		err = fmt.Errorf("%w: the hash of key %q is that of key %q", driver.ErrUnreadable, i.key.Raw, r.Key.Raw)
	}
	return r, err
}

// maxSwaps is how often a swap is tried again because another writer came first.
const maxSwaps = 8

// swap decides items on the records as they were read last, and writes those that are still as they were. The others are
// decided again.
func (s *Store) swap(ctx context.Context, items []*item) {
	for range maxSwaps {
		var todo []*item
		for _, i := range items {
			var r driver.Record
			if r, i.err = i.record(); i.err != nil {
				continue
			}
			if after, write, more := i.decide(r, i.now, i.floor+1); write {
				i.args = swapArgs(i.raw, &after, more)
				todo = append(todo, i)
			}
		}
		if len(todo) == 0 {
			return
		}
		s.run(ctx, todo)
		items = slices.DeleteFunc(todo, func(i *item) bool { return i.err != nil || i.n == 1 })
	}
	for _, i := range items {
		i.err = fmt.Errorf("%w: others changed record %x %d times in a row", driver.ErrNotCommitted, i.hash[:hashSize], maxSwaps)
	}
}

func swapArgs(found []byte, after *driver.Record, more []any) []any {
	head, since := found[:min(len(found), headSize)], any("")
	if after.State == driver.Absent {
		return []any{verbSwap, head, "", 0, 0, "", 0}
	}
	if after.Case() {
		since = micro(after.UpdatedAt)
	}
	return append([]any{verbSwap, head, encode(*after), after.Token, score(after), since, len(more)}, more...)
}

func isUnreadable(err error) bool { return errors.Is(err, driver.ErrUnreadable) }

// refusals are how the replies begin with which Redis refuses every write.
var refusals = []string{
	"OOM ", "READONLY ", "MISCONF ", "LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "NOREPLICAS ", "BUSY ", "NOPERM ", "NOAUTH ",
	"WRONGPASS ", "TRYAGAIN ",
}

// explain marks the errors of a server that cannot write. They do not wrap driver.ErrNotCommitted: the client repeats
// commands by itself, and an attempt before the refused one may have been carried out.
func explain(err error) error {
	var refused goredis.Error
	if !errors.As(err, &refused) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "ERR ")
	if slices.ContainsFunc(refusals, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
		return fmt.Errorf("%w: %w", driver.ErrOutage, err)
	}
	return err
}

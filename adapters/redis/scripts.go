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

var (
	//go:embed lua/prelude.lua
	luaPrelude string
	//go:embed lua/claim.lua
	luaClaim string
	//go:embed lua/extend.lua
	luaExtend string
	//go:embed lua/complete.lua
	luaComplete string
	//go:embed lua/swap.lua
	luaSwap string
	//go:embed lua/duplicates.lua
	luaDuplicates string
)

// scripts are all that ever writes.
type scripts struct{ claim, extend, complete, swap, duplicates *goredis.Script }

// newScripts makes the scripts; clock is the Lua expression for the time, as the command TIME returns it.
func newScripts(clock string) scripts {
	prelude := strings.Replace(luaPrelude, "redis.call('TIME')", clock, 1)
	script := func(body string) *goredis.Script { return goredis.NewScript(prelude + body) }
	return scripts{
		claim: script(luaClaim), extend: script(luaExtend), complete: script(luaComplete), swap: script(luaSwap),
		duplicates: script(luaDuplicates),
	}
}

// maxItems bounds the records of one script: while it runs, the server does nothing else.
const maxItems = 250

// item is one record of a call.
type item struct {
	hash [32]byte
	key  *driver.Key // nil when only the hash is known
	args []any       // for the script
	side bool        // the script gets the name of the record's side too
	// What the script returned: n is a number, raw the record that is there (nil = none), err why neither is known.
	n     int64
	raw   []byte
	err   error
	now   time.Time
	floor uint64
}

func newItem(k *driver.Key) *item { return &item{hash: k.Hash(), key: k} }

// hashSize is how much of a key's hash is in the names of its record and side. The key itself is compared besides.
const hashSize = 16

func (s *Store) shard(i *item) int { return (int(i.hash[0])<<8 | int(i.hash[1])) % s.shards }

// slot begins the names of a shard's keys: one slot of a cluster.
func (s *Store) slot(shard int) string { return fmt.Sprintf("{%s:%d}:", s.prefix, shard) }

func (s *Store) names(i *item) []string {
	slot, hash := s.slot(s.shard(i)), string(i.hash[:hashSize])
	if i.side {
		return []string{slot + "r:" + hash, slot + "x:" + hash}
	}
	return []string{slot + "r:" + hash}
}

// run runs a script on items, one call for each shard and maxItems, all at once. What an item came to is written to it.
func (s *Store) run(ctx context.Context, script *goredis.Script, items []*item, first ...any) {
	shards := map[int][]*item{}
	for _, i := range items {
		n := s.shard(i)
		shards[n] = append(shards[n], i)
	}
	var wg sync.WaitGroup
	for shard, of := range shards {
		for chunk := range slices.Chunk(of, maxItems) {
			call := func() { s.runOn(ctx, script, shard, chunk, first) }
			if len(chunk) <= maxGathered && len(first) == 0 {
				call = func() { s.gather(ctx, lane{script, shard}, chunk) }
			}
			if len(chunk) == len(items) {
				call()
				return
			}
			wg.Go(call)
		}
	}
	wg.Wait()
}

// runOn runs a script on items of one shard.
func (s *Store) runOn(ctx context.Context, script *goredis.Script, shard int, items []*item, first []any) {
	slot := s.slot(shard)
	keys, args := []string{slot + "floor", slot + "index"}, first[:len(first):len(first)]
	for _, i := range items {
		keys, args = append(keys, s.names(i)...), append(args, i.args...)
		i.n, i.raw, i.err = 0, nil, nil
	}
	reply, err := script.Run(ctx, s.client, keys, args...).Slice()
	if err == nil && len(reply) < 2 {
		err = fmt.Errorf("a script returned %d values", len(reply))
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
		if n+2 < len(reply) {
			i.take(reply[n+2])
		}
	}
}

func (i *item) take(v any) {
	switch v := v.(type) {
	case int64:
		i.n = v
	case string:
		i.raw = []byte(v)
	case error:
		i.err = fmt.Errorf("%w: its name in Redis is in use: %w", driver.ErrUnreadable, v)
	}
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

// change is one item that is read, decided in Go and swapped.
type change struct {
	*item
	// decide returns the record afterwards and whether to write it; more are fields of its side with their values.
	decide func(r driver.Record, now time.Time, drawn uint64) (after driver.Record, write bool, more []any)
	// purge removes the record instead.
	purge bool
	lost  bool // somebody else wrote first, and purge or once gave up
	once  bool
}

// maxSwaps is how often a swap is tried again because another writer came first.
const maxSwaps = 8

// swap decides changes on the records as they were read last, and writes those that are still as they were.
func (s *Store) swap(ctx context.Context, changes []*change) {
	for range maxSwaps {
		var todo []*item
		open := changes[:0:0]
		for _, c := range changes {
			r, err := c.record()
			if c.err = err; err != nil {
				continue
			}
			after, write, more := c.decide(r, c.now, c.floor+1)
			if !write {
				continue
			}
			c.side, c.args = true, c.swapArgs(&after, more)
			todo, open = append(todo, c.item), append(open, c)
		}
		if len(todo) == 0 {
			return
		}
		s.run(ctx, s.scripts.swap, todo)
		changes = open[:0]
		for _, c := range open {
			switch {
			case c.err != nil || c.n == 1:
			case c.once:
				c.lost = true
			default:
				changes = append(changes, c)
			}
		}
	}
	for _, c := range changes {
		c.err = fmt.Errorf("%w: key %q was changed by others %d times in a row", driver.ErrNotCommitted, c.key.Raw, maxSwaps)
	}
}

func (c *change) swapArgs(after *driver.Record, more []any) []any {
	head := c.raw
	if len(head) > headSize {
		head = head[:headSize]
	}
	if head == nil {
		head = []byte{}
	}
	if c.purge {
		return []any{head, "", 0, 0, 0}
	}
	return append([]any{head, encode(after), after.Token, score(after), len(more)}, more...)
}

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

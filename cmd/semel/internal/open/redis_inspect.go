package open

import (
	"context"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// Examine tells what a worker meets in Redis.
func (d *redisDB) Examine(ctx context.Context, _ Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	s, err := redis.Inspect(ctx, d.client)
	if err != nil {
		return nil, redisError(d.t, "examine", err)
	}
	f := Facts{redisServer(s), redisEviction(s), redisDisk(s), redisReplicas(s), redisMemory(s)}
	asked := time.Now()
	if _, err := d.Store(ctx); err != nil {
		f.Add(ops.LevelDanger, "scripts", "EVALSHA, EVAL and SCRIPT LOAD for this user, under their own names", "%v", err)
	} else {
		f.Add(ops.LevelOK, "scripts", "", "they run, and the server responds (%s)", time.Since(asked).Round(100*time.Microsecond))
	}
	f.When(s.BusyAfter > 0 && s.BusyAfter < 1000, ops.LevelWarning, "scripts", "CONFIG SET lua-time-limit 5000",
		"lua-time-limit is %d ms: on a slow machine other clients get BUSY while a large batch is claimed", s.BusyAfter)
	if d.t.Queue == "" {
		return f, nil
	}
	found, err := d.examineQueue(ctx)
	return append(f, found...), err
}

// Live is how the queue is set now.
func (d *redisDB) Live(ctx context.Context, queue string) (*ops.LiveQueue, error) {
	q, err := d.Queue(ctx, queue, 0)
	if err != nil {
		return nil, err
	}
	return &ops.LiveQueue{Visibility: q.Features().Visible}, nil
}

// redisStream is what the server says of the stream of a queue.
type redisStream struct {
	name    string
	visible time.Duration
	info    goredis.XInfoStream
	groups  []goredis.XInfoGroup
	workers []goredis.XInfoConsumer
	oldest  string // the first entry in flight
}

func (d *redisDB) examineQueue(ctx context.Context) ([]ops.Check, error) {
	opened, err := d.Queue(ctx, d.t.Queue, 0)
	if err != nil {
		return nil, err
	}
	q := opened.(*redis.Queue)
	s := redisStream{name: q.Stream(), visible: q.Features().Visible}
	info, err := d.client.XInfoStream(ctx, s.name).Result()
	if err == nil {
		s.info = *info
		s.groups, err = d.client.XInfoGroups(ctx, s.name).Result()
	}
	if err == nil {
		s.workers, err = d.client.XInfoConsumers(ctx, s.name, redis.Group).Result()
	}
	if err == nil {
		var pending *goredis.XPending
		if pending, err = d.client.XPending(ctx, s.name, redis.Group).Result(); err == nil {
			s.oldest = pending.Lower
		}
	}
	if err != nil {
		return nil, redisError(d.t, "examine", err)
	}
	return s.facts(), nil
}

func (s *redisStream) facts() []ops.Check {
	var own goredis.XInfoGroup
	var f Facts
	for _, g := range s.groups {
		if g.Name == redis.Group {
			own = g
		}
	}
	f.Add(ops.LevelOK, "stream", "", "%s: %d messages, %d of them in flight; visibility %s", s.name, s.info.Length, own.Pending, words.About(s.visible))
	for _, g := range s.groups {
		f.When(g.Name != redis.Group, ops.LevelDanger, "stream", "a stream for each group, or XGROUP DESTROY",
			"the group %q also reads stream %s: semel deletes what its workers have handled, whether that group has read it or not", g.Name, s.name)
	}
	// What was handled is deleted, so the stream has what is in flight and what was not delivered yet.
	unread, expected := s.info.Length-own.Pending, s.info.EntriesAdded-own.EntriesRead
	trimmed := own.Pending > s.info.Length || s.oldest != "" && idBefore(s.oldest, s.info.FirstEntry.ID)
	f.When(trimmed || own.EntriesRead > 0 && expected > unread, ops.LevelDanger, "trimming",
		"producers without MAXLEN or MINID (XADD), and nobody who calls XTRIM or XDEL",
		"messages of stream %s were removed before they were handled: about %d", s.name, max(expected-unread, 1))
	for _, c := range s.workers {
		f.When(!redis.IsWorker(c.Name), ops.LevelWarning, "consumers", "XGROUP DELCONSUMER when it has none",
			"consumer %q of group %s is no worker of semel, and has %d messages in flight: a worker takes them over %s after they were "+
				"delivered, and there is no record of what was done", c.Name, redis.Group, c.Pending, words.About(s.visible))
	}
	return f
}

// idBefore compares the IDs of entries, MS-SEQUENCE.
func idBefore(a, b string) bool {
	var x, y [2]uint64
	_, errA := fmt.Sscanf(a, "%d-%d", &x[0], &x[1])
	_, errB := fmt.Sscanf(b, "%d-%d", &y[0], &y[1])
	return errA == nil && errB == nil && slices.Compare(x[:], y[:]) < 0
}

func redisServer(s redis.Server) ops.Check {
	is := s.Product + ", a " + s.Role
	if s.Cluster {
		is += " of a cluster"
	}
	if s.Role == "replica" {
		return fact(ops.LevelDanger, "server", "the master, or the sentinels: redis+sentinel://host:26379?master=NAME", "%s: nothing can be written to it", is)
	}
	return fact(ops.LevelOK, "server", "", "%s", is)
}

func redisEviction(s redis.Server) ops.Check {
	const check = "eviction"
	switch {
	case s.Policy == "":
		return fact(ops.LevelWarning, check, "make sure that it is noeviction", "the server does not show maxmemory-policy")
	case s.Evicts():
		return fact(ops.LevelDanger, check, "CONFIG SET maxmemory-policy noeviction",
			"maxmemory-policy is %s: records are removed when the memory is full, and their messages run again", s.Policy)
	case s.Policy != "noeviction":
		return fact(ops.LevelWarning, check, "noeviction", "maxmemory-policy is %s: records have no time to live and stay, but keys of others go first", s.Policy)
	}
	return fact(ops.LevelOK, check, "", "maxmemory-policy is noeviction: when the memory is full, claims fail and messages wait")
}

// redisDisk is about what a crash of the server's machine leaves.
func redisDisk(s redis.Server) ops.Check {
	const check = "persistence"
	switch {
	case s.Hidden && s.AppendOnly:
		return fact(ops.LevelWarning, check, "make sure that it is always, or that messages may run again after a crash",
			"appendonly is yes; the server does not show appendfsync (CONFIG is not permitted)")
	case !s.AppendOnly:
		return fact(ops.LevelDanger, check, "appendonly yes, appendfsync always", "appendonly is no: a restart of the server loses records, and their messages run again")
	case s.Fsync == "always" && s.OnRewrite:
		return fact(ops.LevelWarning, check, "no-appendfsync-on-rewrite no", "no-appendfsync-on-rewrite is yes: a crash while the log is rewritten loses the last records")
	case s.Fsync == "always":
		return fact(ops.LevelOK, check, "", "appendfsync is always: what was confirmed is on the disk")
	case s.Fsync == "everysec":
		return fact(ops.LevelWarning, check, "appendfsync always, where effects are not keyed",
			"appendfsync is everysec: a crash of the machine loses the records of up to two seconds; a crash of the server alone loses none")
	}
	return fact(ops.LevelDanger, check, "appendfsync always", "appendfsync is %s: a crash of the machine loses the records of half a minute", s.Fsync)
}

func redisReplicas(s redis.Server) ops.Check {
	const check = "replication"
	failover := s.Cluster || s.Sentinel || s.Replicas > 0
	switch {
	case failover && s.MinReplicas == 0 && !s.Hidden:
		return fact(ops.LevelWarning, check, "min-replicas-to-write 1, min-replicas-max-lag 10",
			"%d replicas, asynchronous, and min-replicas-to-write is 0: a failover loses the last records, and a master that is cut off goes on "+
				"taking claims that nobody keeps", s.Replicas)
	case failover:
		return fact(ops.LevelWarning, check, "", "%d replicas, asynchronous: a failover can lose the last records, and their messages run again", s.Replicas)
	}
	return fact(ops.LevelOK, check, "", "no replicas: nothing is lost by a failover, and nobody takes over when the machine dies")
}

// recordBytes is about what a record takes, with its place in the index.
const recordBytes = 500

func redisMemory(s redis.Server) ops.Check {
	const check = "memory"
	used, most := s.UsedMemory>>20, s.MaxMemory>>20
	switch {
	case s.MaxMemory == 0:
		return fact(ops.LevelWarning, check, "CONFIG SET maxmemory, below what the machine has",
			"maxmemory is not set (%d MB are used): a server that outgrows its machine is killed", used)
	case s.UsedMemory > s.MaxMemory/5*4:
		return fact(ops.LevelWarning, check, "more memory, or a shorter --retention", "%d of %d MB are used: when the rest is full, claims fail and messages wait", used, most)
	}
	return fact(ops.LevelOK, check, "", "%d of %d MB are used; about %d more records fit, with small results", used, most, (s.MaxMemory-s.UsedMemory)/recordBytes)
}

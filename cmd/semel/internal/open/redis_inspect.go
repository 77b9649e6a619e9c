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
func (d *redisDB) Examine(ctx context.Context, _ Options) ([]Fact, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	s, err := redis.Inspect(ctx, d.client)
	if err != nil {
		return nil, redisError(d.t, "examine", err)
	}
	facts := []Fact{redisServer(s), redisEviction(s), redisDisk(s), redisReplicas(s), redisMemory(s)}
	asked := time.Now()
	if _, err := d.Store(ctx); err != nil {
		facts = append(facts, Fact{Danger, "scripts", err.Error(), "EVALSHA, EVAL and SCRIPT LOAD for this user, under their own names"})
	} else {
		facts = append(facts, Fact{OK, "scripts", fmt.Sprintf("they run, and the server responds (%s)", time.Since(asked).Round(100*time.Microsecond)), ""})
	}
	if s.BusyAfter > 0 && s.BusyAfter < 1000 {
		facts = append(facts, Fact{Warning, "scripts", fmt.Sprintf("lua-time-limit is %d ms: on a slow machine other clients get BUSY while a large batch is claimed", s.BusyAfter),
			"CONFIG SET lua-time-limit 5000"})
	}
	if d.t.Queue != "" {
		found, err := d.examineQueue(ctx)
		if err != nil {
			return nil, err
		}
		facts = append(facts, found...)
	}
	return facts, nil
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

func (d *redisDB) examineQueue(ctx context.Context) ([]Fact, error) {
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

func (s *redisStream) facts() []Fact {
	var own goredis.XInfoGroup
	var facts []Fact
	for _, g := range s.groups {
		if g.Name == redis.Group {
			own = g
			continue
		}
		facts = append(facts, Fact{
			Danger, "stream", fmt.Sprintf("the group %q also reads stream %s: semel deletes what its workers have handled, whether that group has read it or not", g.Name, s.name),
			"a stream for each group, or XGROUP DESTROY",
		})
	}
	facts = slices.Insert(facts, 0, Fact{OK, "stream", fmt.Sprintf("%s: %d messages, %d of them in flight; visibility %s", s.name, s.info.Length, own.Pending,
		words.About(s.visible)), ""})
	// What was handled is deleted, so the stream has what is in flight and what was not delivered yet.
	unread, expected := s.info.Length-own.Pending, s.info.EntriesAdded-own.EntriesRead
	trimmed := own.Pending > s.info.Length || s.oldest != "" && idBefore(s.oldest, s.info.FirstEntry.ID)
	if trimmed || own.EntriesRead > 0 && expected > unread {
		facts = append(facts, Fact{
			Danger, "trimming", fmt.Sprintf("messages of stream %s were removed before they were handled: about %d", s.name, max(expected-unread, 1)),
			"producers without MAXLEN or MINID (XADD), and nobody who calls XTRIM or XDEL",
		})
	}
	for _, c := range s.workers {
		if !redis.IsWorker(c.Name) {
			facts = append(facts, Fact{
				Warning, "consumers", fmt.Sprintf("consumer %q of group %s is no worker of semel, and has %d messages in flight: a worker takes them over %s after "+
					"they were delivered, and there is no record of what was done", c.Name, redis.Group, c.Pending, words.About(s.visible)), "XGROUP DELCONSUMER when it has none",
			})
		}
	}
	return facts
}

// idBefore compares the IDs of entries, MS-SEQUENCE.
func idBefore(a, b string) bool {
	var x, y [2]uint64
	_, errA := fmt.Sscanf(a, "%d-%d", &x[0], &x[1])
	_, errB := fmt.Sscanf(b, "%d-%d", &y[0], &y[1])
	return errA == nil && errB == nil && slices.Compare(x[:], y[:]) < 0
}

func redisServer(s redis.Server) Fact {
	f := Fact{Level: OK, Check: "server", Detail: s.Product + ", a " + s.Role}
	if s.Cluster {
		f.Detail += " of a cluster"
	}
	if s.Role == "replica" {
		f.Level, f.Try = Danger, "the master, or the sentinels: redis+sentinel://host:26379?master=NAME"
		f.Detail += ": nothing can be written to it"
	}
	return f
}

func redisEviction(s redis.Server) Fact {
	switch {
	case s.Policy == "":
		return Fact{Warning, "eviction", "the server does not show maxmemory-policy", "make sure that it is noeviction"}
	case s.Evicts():
		return Fact{Danger, "eviction", fmt.Sprintf("maxmemory-policy is %s: records are removed when the memory is full, and their messages run again", s.Policy),
			"CONFIG SET maxmemory-policy noeviction"}
	case s.Policy != "noeviction":
		return Fact{Warning, "eviction", fmt.Sprintf("maxmemory-policy is %s: records have no time to live and stay, but keys of others go first", s.Policy), "noeviction"}
	}
	return Fact{OK, "eviction", "maxmemory-policy is noeviction: when the memory is full, claims fail and messages wait", ""}
}

// redisDisk is about what a crash of the server's machine leaves.
func redisDisk(s redis.Server) Fact {
	f := Fact{Check: "persistence"}
	switch {
	case s.Hidden && s.AppendOnly:
		f.Level, f.Detail = Warning, "appendonly is yes; the server does not show appendfsync (CONFIG is not permitted)"
		f.Try = "make sure that it is always, or that messages may run again after a crash"
	case !s.AppendOnly:
		f.Level, f.Detail, f.Try = Danger, "appendonly is no: a restart of the server loses records, and their messages run again", "appendonly yes, appendfsync always"
	case s.Fsync == "always" && s.OnRewrite:
		f.Level, f.Detail, f.Try = Warning, "no-appendfsync-on-rewrite is yes: a crash while the log is rewritten loses the last records", "no-appendfsync-on-rewrite no"
	case s.Fsync == "always":
		f.Level, f.Detail = OK, "appendfsync is always: what was confirmed is on the disk"
	case s.Fsync == "everysec":
		f.Level, f.Detail = Warning, "appendfsync is everysec: a crash of the machine loses the records of up to two seconds; a crash of the server alone loses none"
		f.Try = "appendfsync always, where effects are not keyed"
	default:
		f.Level, f.Detail, f.Try = Danger, fmt.Sprintf("appendfsync is %s: a crash of the machine loses the records of half a minute", s.Fsync), "appendfsync always"
	}
	return f
}

func redisReplicas(s redis.Server) Fact {
	failover := s.Cluster || s.Sentinel || s.Replicas > 0
	switch {
	case failover && s.MinReplicas == 0 && !s.Hidden:
		return Fact{
			Warning, "replication", fmt.Sprintf("%d replicas, asynchronous, and min-replicas-to-write is 0: a failover loses the last records, and a master that is "+
				"cut off goes on taking claims that nobody keeps", s.Replicas), "min-replicas-to-write 1, min-replicas-max-lag 10",
		}
	case failover:
		return Fact{Warning, "replication", fmt.Sprintf("%d replicas, asynchronous: a failover can lose the last records, and their messages run again", s.Replicas), ""}
	}
	return Fact{OK, "replication", "no replicas: nothing is lost by a failover, and nobody takes over when the machine dies", ""}
}

// recordBytes is about what a record takes, with its place in the index.
const recordBytes = 500

func redisMemory(s redis.Server) Fact {
	mb := func(n int64) int64 { return n >> 20 }
	switch {
	case s.MaxMemory == 0:
		return Fact{Warning, "memory", fmt.Sprintf("maxmemory is not set (%d MB are used): a server that outgrows its machine is killed", mb(s.UsedMemory)),
			"CONFIG SET maxmemory, below what the machine has"}
	case s.UsedMemory > s.MaxMemory/5*4:
		return Fact{Warning, "memory", fmt.Sprintf("%d of %d MB are used: when the rest is full, claims fail and messages wait", mb(s.UsedMemory), mb(s.MaxMemory)),
			"more memory, or a shorter --retention"}
	}
	return Fact{OK, "memory", fmt.Sprintf("%d of %d MB are used; about %d more records fit, with small results", mb(s.UsedMemory), mb(s.MaxMemory),
		(s.MaxMemory-s.UsedMemory)/recordBytes), ""}
}

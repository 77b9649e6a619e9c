package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// Server is how a server is set up, as far as it shows that. Of a cluster it is the master that keeps data the worst.
type Server struct {
	// Product is "Redis 7.0.15" or "Valkey 8.0.1". Role is "master" or "replica"; Replicas are connected now.
	Product, Role string
	Replicas      int
	// Cluster: it is part of a cluster. Sentinel: the client found it by a sentinel. Either may fail over.
	Cluster, Sentinel bool
	// Hidden: CONFIG is not permitted, so the settings below are not known.
	Hidden bool
	// AppendOnly and Fsync are appendonly and appendfsync; Save is save; OnRewrite is no-appendfsync-on-rewrite.
	AppendOnly, OnRewrite bool
	Fsync, Save           string
	// Policy is maxmemory-policy; MaxMemory (0 = none) and UsedMemory are bytes.
	Policy                string
	MaxMemory, UsedMemory int64
	// MinReplicas is min-replicas-to-write. BusyAfter is how long a script may run, in ms.
	MinReplicas, BusyAfter int64
}

// Inspect asks the server how it is set up.
func Inspect(ctx context.Context, client goredis.UniversalClient) (Server, error) {
	cluster, ok := client.(*goredis.ClusterClient)
	if !ok {
		s, err := inspect(ctx, client)
		if c, is := client.(*goredis.Client); is && strings.HasPrefix(c.Options().Addr, "FailoverClient") {
			s.Sentinel = true
		}
		return s, err
	}
	var mu sync.Mutex
	var worst *Server
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error { // all at once
		s, err := inspect(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if worst == nil || len(s.Losses()) > len(worst.Losses()) {
			worst = &s
		}
		return err
	})
	switch {
	case err != nil:
		return Server{}, err
	case worst == nil:
		return Server{}, errors.New("the cluster has no master")
	}
	return *worst, nil
}

func inspect(ctx context.Context, node goredis.Cmdable) (s Server, err error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return s, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	hidden := false
	for _, name := range []string{"appendfsync", "no-appendfsync-on-rewrite", "save", "min-*-to-write", "lua-time-limit"} {
		values, err := node.ConfigGet(ctx, name).Result()
		if hidden = err != nil; hidden {
			break
		}
		maps.Copy(info, values)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64)
		return n
	}
	s = Server{
		Product: "Redis " + info["redis_version"], Role: strings.Replace(info["role"], "slave", "replica", 1),
		Replicas: int(number("connected_slaves")), Cluster: info["cluster_enabled"] == "1", Hidden: hidden,
		AppendOnly: info["aof_enabled"] == "1", OnRewrite: info["no-appendfsync-on-rewrite"] == "yes",
		Fsync: info["appendfsync"], Save: info["save"],
		Policy: info["maxmemory_policy"], MaxMemory: number("maxmemory"), UsedMemory: number("used_memory"),
		MinReplicas: number("min-replicas-to-write"), BusyAfter: number("lua-time-limit"),
	}
	if v := info["valkey_version"]; v != "" {
		s.Product = "Valkey " + v
	}
	return s, ctx.Err()
}

// Evicts reports that the server removes records when its memory is full. Records have no time to live, so the policies
// that only remove keys with one leave them alone.
func (s Server) Evicts() bool { return strings.HasPrefix(s.Policy, "allkeys-") }

// Losses are sentences about how this server can lose records that it confirmed; none = it keeps them on its disk.
func (s Server) Losses() []string { return s.losses("records", ", and their messages run again") }

// losses are the same of other things. again is what follows from it.
func (s Server) losses(records, again string) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)+again) }
	if s.Evicts() {
		add("maxmemory-policy is %s: %s removes %s when its memory is full", s.Policy, s.name(), records)
	}
	switch {
	case s.Hidden && !s.AppendOnly && s.Policy == "":
		add("the server does not show how it keeps data: %s can be lost when it stops or fails over", records)
	case !s.AppendOnly && s.Save == "" && !s.Hidden:
		add("%s keeps nothing on disk (appendonly no): all %s are lost when it stops", s.name(), records)
	case !s.AppendOnly:
		add("appendonly is no: %s written since the last snapshot are lost when the server stops", records)
	case s.Hidden:
		add("the server does not show appendfsync: the last %s before a crash of its machine can be lost", records)
	case s.Fsync == "everysec":
		add("appendfsync is everysec: a crash of the server's machine can lose the %s of two seconds", records)
	case s.Fsync != "always":
		add("appendfsync is %s: a crash of the server's machine can lose the %s of half a minute", s.Fsync, records)
	case s.OnRewrite:
		add("no-appendfsync-on-rewrite is yes: while the log is rewritten, a crash of the server's machine can lose its last %s", records)
	}
	if s.Replicas > 0 || s.Cluster || s.Sentinel || s.Role == "replica" {
		add("replication is asynchronous: a failover can lose the last confirmed %s", records)
	}
	return all
}

func (s Server) name() string {
	name, _, _ := strings.Cut(s.Product, " ")
	return name
}

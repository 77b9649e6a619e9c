package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// newCluster starts a cluster of three masters.
func newCluster(t *testing.T) *goredis.ClusterClient {
	t.Helper()
	var addrs []string
	var nodes []*goredis.Client
	for i := range 3 {
		bus, err := server.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		srv := server.Own(t, "redis", map[string]string{"cluster-enabled": "yes", "cluster-port": fmt.Sprint(bus), "appendfsync": "everysec"})
		c := connect(t, srv.URL())
		if err := c.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*5462, min(i*5462+5461, 16383)).Err(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			host, port, _ := strings.Cut(srv.Addr(), ":")
			if err := nodes[0].Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
				t.Fatal(err)
			}
		}
		addrs, nodes = append(addrs, srv.Addr()), append(nodes, c)
	}
	for _, n := range nodes {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info := n.ClusterInfo(t.Context()).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("there is no cluster: %s", info)
			}
		}
	}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, DialTimeout: stallLimit, ReadTimeout: stallLimit, WriteTimeout: stallLimit,
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestStoreSuiteCluster has its shards on three nodes.
func TestStoreSuiteCluster(t *testing.T) {
	c := newCluster(t)
	s, err := Open(t.Context(), c, Options{Prefix: "look"})
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Features(); s.shards != 16 || f.Durable || !strings.Contains(strings.Join(f.Caveats, "\n"), "failover") {
		t.Errorf("%d shards, %+v", s.shards, f)
	}
	for range 300 { // the masters respond at once now and then
		if _, err := Inspect(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	testClusterQueues(t, c)
	t.Run("suite", func(t *testing.T) { // what is parallel ends with it
		semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
			s := openOn(t, c)
			return semeltest.StoreSetup{Store: s, Queue: queueOf(t, s, time.Minute), Damage: damage(s), Sample: semeltest.Sampled(23)}
		})
	})
	var nodes atomic.Int32
	err = c.ForEachMaster(context.Background(), func(ctx context.Context, n *goredis.Client) error {
		if n.DBSize(ctx).Val() > 0 {
			nodes.Add(1)
		}
		return nil
	})
	if err != nil || nodes.Load() != 3 {
		t.Errorf("%d of 3 nodes have keys (%v)", nodes.Load(), err)
	}
}

// testClusterQueues: all keys of a queue are in one slot. Acks commit with the records if these are in the same slot.
func testClusterQueues(t *testing.T, c *goredis.ClusterClient) {
	for prefix, shards := range map[string]int{"one": 1, "many": 0} {
		s, err := Open(t.Context(), c, Options{Prefix: prefix, Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		q := queueOf(t, s, time.Minute)
		if s.Joins(q) != (shards == 1) {
			t.Errorf("%d shards: the store joins the queue: %v", s.shards, s.Joins(q))
		}
		send(t, q, 2)
		ds := receive(t, q, 2)
		if o := settleOne(t, q, driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Retry, After: time.Millisecond}); o != driver.Applied {
			t.Errorf("%d shards: a retry is %v", s.shards, o)
		}
		w := driver.Work{
			Finish: driver.Finish{Hold: verdict(t, s, keyOf(1)).Hold, Final: driver.Complete, Keep: time.Hour},
			Ack:    &driver.Settlement{Receipt: ds[0].Receipt},
		}
		if o, err := s.Commit(t.Context(), w); (err == nil && o[0] == driver.Applied) != s.Joins(q) || !s.Joins(q) && !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%d shards: a commit with an ack is %v, %v", s.shards, o, err)
		}
		receive(t, q, 1)
	}
}

// openOn opens an empty store on a cluster, whose keys go with it.
func openOn(t testing.TB, c *goredis.ClusterClient) *Store {
	t.Helper()
	s, err := Open(t.Context(), c, Options{Prefix: strings.ReplaceAll(t.Name(), " ", "-")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

package redis

import (
	"context"
	"net"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// history numbers the stretches of time in which the server forgets nothing that it confirmed. A server that fails over or
// restarts ends its connections, so every new connection begins another history: at worst a cache forgets what it could
// have kept.
type history struct{ n atomic.Uint64 }

// watch counts the connections that a client makes from now on.
func (h *history) watch(client goredis.UniversalClient) {
	if c, ok := client.(*goredis.ClusterClient); ok {
		c.OnNewNode(func(node *goredis.Client) { node.AddHook(h) })
		return
	}
	client.AddHook(h)
}

// DialHook implements goredis.Hook.
func (h *history) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.n.Add(1)
		return next(ctx, network, addr)
	}
}

// ProcessHook implements goredis.Hook.
func (h *history) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (h *history) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// History changes when the server may have forgotten what it confirmed. See [driver.Historian].
func (s *Store) History() uint64 { return s.history.n.Load() }

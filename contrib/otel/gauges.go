package semelotel

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/semel-dev/semel/driver"
)

// askTimeout bounds one request to queue and store.
const askTimeout = 5 * time.Second

// gauges are read when the meter provider collects them.
type gauges struct {
	lag atomic.Pointer[time.Duration] // nil: no sweep was reported

	depth, deadLetters, up, storeUp, uncertain, running, slots, paused, breaker metric.Int64ObservableGauge
	oldest, sweepLag, retention                                                 metric.Float64ObservableGauge
	cacheHits, late                                                             metric.Int64ObservableCounter
	cacheEntries, cacheSize, info                                               metric.Int64ObservableGauge
}

func (g *gauges) make(f *family, m *metrics, q driver.Queue, s driver.Store, consumer string) {
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		i, err := f.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		return kept(f, i, err)
	}
	seconds := func(name, what string) metric.Float64ObservableGauge {
		i, err := f.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
		return kept(f, i, err)
	}
	counter := func(name, unit, what string) metric.Int64ObservableCounter {
		i, err := f.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		return kept(f, i, err)
	}
	g.depth = gauge("semel.queue.depth", "{message}", "Messages in the queue, by state.")
	g.oldest = seconds("semel.oldest_message.age", "Age of the oldest message in the queue.")
	g.deadLetters = gauge("semel.dlq.depth", "{message}", "Dead letters that wait for a person.")
	g.up = gauge("semel.queue.up", "", "1 when the queue responded to the last request.")
	g.storeUp = gauge("semel.store.up", "", "1 when the store responded to the last request for the uncertain keys.")
	g.uncertain = gauge("semel.uncertain_keys", "{key}", "Keys that wait for a person; 1000 = that many or more.")
	g.running = gauge("semel.inflight", "{handler}", "Handlers that run.")
	g.slots = gauge("semel.slots", "{handler}", "Handlers that may run at once.")
	g.paused = gauge("semel.paused", "", "1 while nothing is fetched: the store does not respond, or the breaker is open (downstream).")
	g.breaker = gauge("semel.breaker.state", "", "0 closed, 1 half open, 2 open.")
	g.sweepLag = seconds("semel.sweep.lag", "How long the oldest record that is still there is past its retention.")
	g.info = gauge("semel.info", "", "1, with the mode of the worker and what it guarantees for effects.")
	g.retention = seconds("semel.retention", "How long the record of a finished message is kept at least.")
	g.late = counter("semel.late_messages", "{message}", "Messages that became dead letters because they came too late.")
	g.cacheHits = counter("semel.cache.hits", "{claim}", "Claims that were decided from memory.")
	g.cacheEntries = gauge("semel.cache.entries", "{key}", "Completed keys in memory.")
	g.cacheSize = gauge("semel.cache.size", "{key}", "The most keys that the cache holds.")
	inspect, _ := driver.As[driver.QueueInspector](q)
	cached, _ := driver.As[driver.Cached](s)
	_, err := f.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		g.ofConsumer(m, o)
		g.ofCache(m, cached, o)
		g.ofQueue(ctx, m, inspect, o)
		if s != nil {
			g.ofStore(ctx, m, s, consumer, o)
		}
		return nil
	}, g.depth, g.oldest, g.deadLetters, g.up, g.storeUp, g.uncertain, g.running, g.slots, g.paused, g.breaker, g.sweepLag, g.late,
		g.cacheHits, g.cacheEntries, g.cacheSize, g.info, g.retention)
	kept(f, struct{}{}, err)
}

func (g *gauges) ofConsumer(m *metrics, o metric.Observer) {
	c, base := m.consumer.Load(), metric.WithAttributeSet(m.base)
	if c == nil {
		return
	}
	s, l := c.Summary(), c.Load()
	o.ObserveInt64(g.late, s.Late, base)
	o.ObserveInt64(g.running, int64(l.Running), base)
	o.ObserveInt64(g.slots, int64(l.Slots), base)
	o.ObserveInt64(g.paused, flag(l.StoreDown), m.with("reason", "store"))
	o.ObserveInt64(g.paused, flag(l.Breaker == "open"), m.with("reason", "downstream"))
	o.ObserveInt64(g.breaker, map[string]int64{"half-open": 1, "open": 2}[l.Breaker], base)
	lag := time.Duration(0)
	if known := g.lag.Load(); known != nil {
		lag = *known
	}
	o.ObserveFloat64(g.sweepLag, lag.Seconds(), base)
	guarantee := c.Guarantee()
	o.ObserveInt64(g.info, 1, base, metric.WithAttributes(attribute.String("mode", guarantee.Mode), attribute.String("guarantee", guarantee.Effects)))
	window, _ := c.Window()
	o.ObserveFloat64(g.retention, window.Seconds(), base)
}

func (g *gauges) ofCache(m *metrics, cached driver.Cached, o metric.Observer) {
	if cached == nil {
		return
	}
	s, base := cached.CacheStats(), metric.WithAttributeSet(m.base)
	o.ObserveInt64(g.cacheHits, s.Hits, base)
	o.ObserveInt64(g.cacheEntries, int64(s.Entries), base)
	o.ObserveInt64(g.cacheSize, int64(s.Size), base)
}

func (g *gauges) ofQueue(ctx context.Context, m *metrics, q driver.QueueInspector, o metric.Observer) {
	if q == nil {
		return
	}
	s, err := q.Stats(ctx)
	base := metric.WithAttributeSet(m.base)
	o.ObserveInt64(g.up, flag(err == nil), base)
	if err != nil {
		return
	}
	o.ObserveInt64(g.depth, s.Visible, m.with("state", "visible"))
	o.ObserveInt64(g.depth, s.InFlight, m.with("state", "in_flight"))
	o.ObserveInt64(g.depth, s.Delayed, m.with("state", "delayed"))
	o.ObserveFloat64(g.oldest, s.Oldest.Seconds(), base)
	o.ObserveInt64(g.deadLetters, s.DeadLetters, base)
}

func (g *gauges) ofStore(ctx context.Context, m *metrics, s driver.Store, consumer string, o metric.Observer) {
	n, ok, err := driver.CountUncertain(ctx, s, consumer)
	if !ok {
		return
	}
	base := metric.WithAttributeSet(m.base)
	o.ObserveInt64(g.storeUp, flag(err == nil), base)
	if err == nil {
		o.ObserveInt64(g.uncertain, int64(n), base)
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

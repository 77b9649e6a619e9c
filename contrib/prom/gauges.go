package prom

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// gauges are read when they are scraped.
type gauges struct {
	o        Options
	inspect  driver.QueueInspector // nil: the queue has no inspector
	cached   driver.Cached         // nil: the store has no cache
	consumer atomic.Pointer[semel.Consumer]
	lag      atomic.Pointer[time.Duration] // nil: no watched consumer sweeps

	depth, oldest, deadLetters, up     *prometheus.Desc
	storeUp, uncertain                 *prometheus.Desc
	running, slots, paused, breaker    *prometheus.Desc
	cacheHits, cacheEntries, cacheSize *prometheus.Desc
	late                               *prometheus.Desc
	sweepLag                           *prometheus.Desc
	info, retention                    *prometheus.Desc

	mu    sync.Mutex // one request at a time
	asked time.Time
	queue queueState
	store storeState
}

// queueState is the last result of the queue, storeState that of the store. ok is false when the store cannot be asked.
type (
	queueState struct {
		stats driver.QueueStats
		err   error
	}
	storeState struct {
		uncertain int
		ok        bool
		err       error
	}
)

func newGauges(o Options, labels prometheus.Labels) *gauges {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, more, labels)
	}
	g := &gauges{
		o:           o,
		depth:       desc("semel_queue_depth", "Messages in the queue, by state. Brokers may count approximately.", "state"),
		oldest:      desc("semel_oldest_message_age_seconds", "Age of the oldest message in the queue; 0 when there is none or the broker does not report it."),
		deadLetters: desc("semel_dlq_depth", "Dead letters that wait for a person."),
		up:          desc("semel_queue_up", "1 when the queue responded to the last request."),
		running:     desc("semel_inflight", "Handlers that run."),
		slots:       desc("semel_slots", "Handlers that may run at once."),
		paused: desc("semel_paused", "1 while nothing is fetched, because the store does not respond (reason store) or "+
			"the breaker is open (reason downstream).", "reason"),
		breaker: desc("semel_breaker_state", "0 closed, 1 half open, 2 open."),

		cacheHits:    desc("semel_cache_hits_total", "Claims that were decided from memory."),
		cacheEntries: desc("semel_cache_entries", "Completed keys in memory."),
		cacheSize:    desc("semel_cache_size", "The most keys that the cache holds."),
	}
	g.late = desc("semel_late_messages_total", "Messages that became dead letters because they came too late: duplicates of "+
		"expired records, and overtaken versions.")
	g.storeUp = desc("semel_store_up", "1 when the store responded to the last request for the uncertain keys.")
	g.uncertain = desc("semel_uncertain_keys", "Keys that wait for a person, because it is unknown whether their effect "+
		"happened; 1000 = that many or more.")
	g.sweepLag = desc("semel_sweep_lag_seconds", "How long the oldest record that is still there is past its retention.")
	g.info = desc("semel_info", "1, with the mode of the worker and what it guarantees for effects.", "mode", "guarantee")
	g.retention = desc("semel_retention_seconds", "How long the record of a finished message is kept at least: later duplicates run again.")
	g.inspect, _ = driver.As[driver.QueueInspector](o.Queue)
	g.cached, _ = driver.As[driver.Cached](o.Store)
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.depth, g.oldest, g.deadLetters, g.up, g.running, g.slots, g.paused, g.breaker, g.cacheHits, g.cacheEntries, g.cacheSize,
		g.late, g.sweepLag, g.storeUp, g.uncertain, g.info, g.retention,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	value := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	queue, store := g.ask()
	if g.inspect != nil {
		value(g.up, flag(queue.err == nil))
		if s := queue.stats; queue.err == nil {
			value(g.depth, float64(s.Visible), "visible")
			value(g.depth, float64(s.InFlight), "in_flight")
			value(g.depth, float64(s.Delayed), "delayed")
			value(g.oldest, s.Oldest.Seconds())
			value(g.deadLetters, float64(s.DeadLetters))
		}
	}
	if store.ok {
		value(g.storeUp, flag(store.err == nil))
		if store.err == nil {
			value(g.uncertain, float64(store.uncertain))
		}
	}
	counted := func(d *prometheus.Desc, n int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	if c := g.consumer.Load(); c != nil {
		s := c.Summary()
		counted(g.late, s.Late)
		l := c.Load()
		value(g.running, float64(l.Running))
		value(g.slots, float64(l.Slots))
		value(g.paused, flag(l.StoreDown), "store")
		value(g.paused, flag(l.Breaker == "open"), "downstream")
		value(g.breaker, map[string]float64{"half-open": 1, "open": 2}[l.Breaker])
		guarantee := c.Guarantee()
		value(g.info, 1, guarantee.Mode, guarantee.Effects)
		window, _ := c.Window()
		value(g.retention, window.Seconds())
	}
	if lag := g.lag.Load(); lag != nil {
		value(g.sweepLag, lag.Seconds())
	}
	if g.cached != nil {
		s := g.cached.CacheStats()
		counted(g.cacheHits, s.Hits)
		value(g.cacheEntries, float64(s.Entries))
		value(g.cacheSize, float64(s.Size))
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ask asks queue and store, unless they were asked a moment ago.
func (g *gauges) ask() (queueState, storeState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked.IsZero() || time.Since(g.asked) >= g.o.Every {
		ctx, cancel := context.WithTimeout(context.Background(), g.o.Timeout)
		defer cancel()
		var both sync.WaitGroup // if one hangs, the other must not lose its time
		if g.inspect != nil {
			both.Go(func() { g.queue.stats, g.queue.err = g.inspect.Stats(ctx) })
		}
		if g.o.Store != nil {
			both.Go(func() {
				g.store.uncertain, g.store.ok, g.store.err = driver.CountUncertain(ctx, g.o.Store, g.o.Consumer)
			})
		}
		both.Wait()
		g.asked = time.Now() // after the responses: a scrape that waited for a slow one does not ask it again
	}
	return g.queue, g.store
}

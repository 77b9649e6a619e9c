package prom

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// Options configure the metrics.
type Options struct {
	// Queue and Store are those of the consumer. Queue names the metrics' label, and is asked for its depth when it is a
	// driver.QueueInspector. Store is asked for the keys whose outcome is unknown when it lists them
	// (driver.StoreFeatures.ListsUncertain), and gives the cache's figures when it is a driver.Cached. Store may be nil.
	Queue driver.Queue
	Store driver.Store
	// Consumer is the consumer's name. Defaults to the queue's.
	Consumer string
	// Every is how old the figures of queue and store may be: more frequent scrapes get the same figures. Defaults to 10 s.
	Every time.Duration
	// Timeout bounds one request to queue and store. Defaults to 5 s.
	Timeout time.Duration
}

func (o *Options) resolve() error {
	if o.Queue == nil {
		return &semel.ConfigError{Field: "Queue", Problem: "is nil", Hint: "give the queue that the consumer reads"}
	}
	if o.Consumer == "" {
		o.Consumer = o.Queue.Features().Name
	}
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	return nil
}

// The bounds of the histograms, in seconds.
var (
	runBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
	callBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	waitBuckets = []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400}
)

// Metrics are the metrics of one consumer.
type Metrics struct {
	deliveries, duplicates, leases, visibilities, settleErrors, storeErrors *prometheus.CounterVec
	effects, doubts, leaseLost, pauses, swept, expired, parked              prometheus.Counter
	handler, overhead, inQueue                                              prometheus.Histogram
	calls                                                                   *prometheus.HistogramVec
	gauges                                                                  *gauges
}

// New registers the metrics of one consumer with reg. It fails when reg has metrics of the same queue and consumer.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	f := family{labels: prometheus.Labels{"queue": o.Queue.Features().Name, "consumer": o.Consumer}}
	m := &Metrics{
		deliveries: f.counters("semel_deliveries_total", "Deliveries by how they ended.", "decision"),
		duplicates: f.counters("semel_duplicates_total",
			"Duplicates that were suppressed, by where they came from. For information: this is what semel is for.", "cause"),
		effects: f.counter("semel_effects_total", "Completed records: effects that took place."),
		doubts: f.counter("semel_doubts_total",
			"Moments after which nobody could know whether an effect had happened (protocol: U-events)."),
		leaseLost: f.counter("semel_lease_lost_total", "Runs that lost their lease: they wrote nothing, and another worker runs the key."),
		leases:    f.counters("semel_lease_extensions_total", "Extensions of leases in the store.", "result"),
		visibilities: f.counters("semel_visibility_extensions_total",
			"Extensions of the visibility in the queue. They are best effort.", "result"),
		settleErrors: f.counters("semel_settle_errors_total",
			"Deliveries that the queue did not settle: a redelivery will be settled from the record.", "reason"),
		storeErrors: f.counters("semel_store_errors_total", "Calls of the store that failed, and are repeated.", "op"),
		pauses:      f.counter("semel_pauses_total", "How often polling stopped, because the store did not respond or the breaker opened."),
		swept:       f.counter("semel_sweep_deleted_total", "Records that this consumer removed after their retention."),
		expired:     f.counter("semel_sweep_expired_total", "Records that this consumer's sweeps made EXPIRED after their retention."),
		parked: f.counter("semel_sweep_parked_total",
			"Abandoned claims that this consumer's sweeps parked: their outcome is unknown, and no delivery may ever come for them."),
		handler:  f.histogram("semel_handler_duration_seconds", "How long handlers ran.", runBuckets),
		overhead: f.histogram("semel_overhead_seconds", "What a delivery took beside its handler, from receipt to settlement.", callBuckets),
		inQueue:  f.histogram("semel_time_in_queue_seconds", "From when a message was sent until its first run.", waitBuckets),
		calls:    f.histograms("semel_store_op_duration_seconds", "How long calls of the store took.", callBuckets, "op"),
		gauges:   newGauges(o, f.labels),
	}
	m.zero()
	for _, c := range append(f.all, m.gauges) {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of queue %s, consumer %s: %w", f.labels["queue"], o.Consumer, err)
		}
	}
	return m, nil
}

// zero shows the counters that have labels before anything is counted. To Prometheus, a counter that appears with 1 has not
// increased: an alert on it would miss the first message that was parked.
func (m *Metrics) zero() {
	for _, d := range []semel.Decision{
		semel.Executed, semel.Replayed, semel.ReplayedOtherPayload, semel.BusyDeferred, semel.TakenOver, semel.Stale, semel.Mismatched, semel.Retried,
		semel.DeadLettered, semel.ParkedUncertain, semel.Fenced, semel.Dropped, semel.Unprotected, semel.Returned, semel.Expired,
	} {
		m.deliveries.WithLabelValues(string(d))
	}
	for _, c := range []semel.Cause{semel.Redelivery, semel.ProducerDuplicate, semel.RacedLocal} {
		m.duplicates.WithLabelValues(string(c))
	}
	for _, op := range []string{"claim", "extend", "finish", "begin", "commit"} {
		m.storeErrors.WithLabelValues(op)
	}
}

// family makes metrics that have labels in common.
type family struct {
	labels prometheus.Labels
	all    []prometheus.Collector
}

func (f *family) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Name: name, Help: help, ConstLabels: f.labels}
}

func kept[C prometheus.Collector](f *family, c C) C {
	f.all = append(f.all, c)
	return c
}

func (f *family) counter(name, help string) prometheus.Counter {
	return kept(f, prometheus.NewCounter(prometheus.CounterOpts(f.opts(name, help))))
}

func (f *family) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return kept(f, prometheus.NewCounterVec(prometheus.CounterOpts(f.opts(name, help)), labels))
}

func (f *family) histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: f.labels, Buckets: buckets}
}

func (f *family) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return kept(f, prometheus.NewHistogram(f.histogramOpts(name, help, buckets)))
}

func (f *family) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return kept(f, prometheus.NewHistogramVec(f.histogramOpts(name, help, buckets), labels))
}

// Watch also shows how busy the consumer is: runs, pauses, breaker, cache. It replaces the consumer that was watched before.
func (m *Metrics) Watch(c *semel.Consumer) {
	m.gauges.lag.CompareAndSwap(nil, new(time.Duration))
	m.gauges.consumer.Store(c)
}

// Events is the observer to give to the consumer, alone or in a semel.Tee. It blocks on nothing.
func (m *Metrics) Events() semel.Events {
	return semel.Events{Delivery: m.delivery, Attempt: m.attempt, Lease: m.lease, Health: m.health, Calls: m.called}
}

func (m *Metrics) delivery(e semel.Event) {
	switch e.Kind {
	case semel.EventDecided:
		m.deliveries.WithLabelValues(string(e.Decision)).Inc()
		if e.Cause != "" {
			m.duplicates.WithLabelValues(string(e.Cause)).Inc()
		}
		switch e.Decision {
		case semel.Executed:
			m.effects.Inc()
		case semel.Fenced:
			m.leaseLost.Inc()
		}
	case semel.EventSettled:
		if e.Handled > 0 {
			m.overhead.Observe(max(e.Elapsed-e.Handled, 0).Seconds())
		}
		if e.Outcome != driver.Applied && e.Outcome != driver.Settled {
			m.settleErrors.WithLabelValues(e.Outcome.String()).Inc()
		}
	}
}

func (m *Metrics) attempt(e semel.Event) {
	switch e.Kind {
	case semel.EventStarted:
		if e.Attempt <= 1 && !e.SentAt.IsZero() {
			m.inQueue.Observe(max(e.At.Sub(e.SentAt), 0).Seconds())
		}
	case semel.EventEnded:
		m.handler.Observe(e.Elapsed.Seconds())
	case semel.EventDoubt:
		m.doubts.Inc()
	}
}

func (m *Metrics) lease(e semel.Event) {
	if e.Lease {
		m.leases.WithLabelValues(e.Outcome.String()).Inc()
	} else {
		m.visibilities.WithLabelValues(e.Outcome.String()).Inc()
	}
}

func (m *Metrics) health(e semel.Event) {
	switch e.Kind {
	case semel.EventPaused:
		m.pauses.Inc()
	case semel.EventSwept:
		m.swept.Add(float64(e.Purged))
		m.expired.Add(float64(e.Expired))
		m.parked.Add(float64(e.Abandoned))
		m.gauges.lag.Store(&e.Lag)
	}
}

func (m *Metrics) called(e semel.Event) {
	m.calls.WithLabelValues(e.Op).Observe(e.Elapsed.Seconds())
	if e.Err != nil {
		m.storeErrors.WithLabelValues(e.Op).Inc()
	}
}

// Duplicates registers semel_duplicate_effects_total of one consumer: effects beyond the first of their key, counted
// without the records (by semel audit, or by a scenario of the lab). Page a person for anything but 0.
func Duplicates(reg prometheus.Registerer, queue, consumer string) (prometheus.Counter, error) {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "semel_duplicate_effects_total", Help: "Effects beyond the first of their key, counted by an audit of the effects.",
		ConstLabels: prometheus.Labels{"queue": queue, "consumer": consumer},
	})
	if err := reg.Register(c); err != nil {
		return nil, err
	}
	return c, nil
}

// Audited registers semel_audit_timestamp_seconds of one consumer: when the last audit of its effects ended. Without it, a
// missing audit looks like one that found nothing.
func Audited(reg prometheus.Registerer, queue, consumer string, at time.Time) error {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "semel_audit_timestamp_seconds", Help: "When the last audit of the effects ended, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"queue": queue, "consumer": consumer},
	})
	g.Set(float64(at.Unix()))
	return reg.Register(g)
}

package semelotel

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// The bounds of the histograms, in seconds: those of package prom.
var (
	runBounds  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
	callBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	waitBounds = []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400}
)

// metrics are the instruments of one consumer.
type metrics struct {
	consumer atomic.Pointer[semel.Consumer]
	base     attribute.Set

	deliveries, duplicates, leases, visibilities, settleErrors, storeErrors metric.Int64Counter
	effects, doubts, leaseLost, pauses, swept, expired, parked              metric.Int64Counter
	handler, overhead, inQueue, calls                                       metric.Float64Histogram
	gauges                                                                  gauges
}

func newMetrics(m metric.Meter, q driver.Queue, s driver.Store, consumer string) (*metrics, error) {
	f := family{meter: m}
	x := &metrics{
		base: attribute.NewSet(attribute.String("queue", q.Features().Name), attribute.String("consumer", consumer)),

		deliveries:   f.counter("semel.deliveries", "{delivery}", "Deliveries by how they ended."),
		duplicates:   f.counter("semel.duplicates", "{delivery}", "Duplicates that were suppressed, by where they came from."),
		effects:      f.counter("semel.effects", "{effect}", "Completed records: effects that took place."),
		doubts:       f.counter("semel.doubts", "{doubt}", "Moments after which nobody could know whether an effect had happened."),
		leaseLost:    f.counter("semel.lease.lost", "{run}", "Runs that lost their lease, and wrote nothing."),
		leases:       f.counter("semel.lease.extensions", "{extension}", "Extensions of leases in the store."),
		visibilities: f.counter("semel.visibility.extensions", "{extension}", "Extensions of the visibility in the queue."),
		settleErrors: f.counter("semel.settle.errors", "{delivery}", "Deliveries that the queue did not settle."),
		storeErrors:  f.counter("semel.store.errors", "{call}", "Calls of the store that failed, and are repeated."),
		pauses:       f.counter("semel.pauses", "{pause}", "How often polling stopped."),
		swept:        f.counter("semel.sweep.deleted", "{record}", "Records that were removed after their retention."),
		expired:      f.counter("semel.sweep.expired", "{record}", "Records that became EXPIRED after their retention."),
		parked:       f.counter("semel.sweep.parked", "{record}", "Abandoned claims that sweeps parked."),
		handler:      f.histogram("semel.handler.duration", "How long handlers ran.", runBounds),
		overhead:     f.histogram("semel.overhead", "What a delivery took beside its handler, from receipt to settlement.", callBounds),
		inQueue:      f.histogram("semel.time_in_queue", "From when a message was sent until its first run.", waitBounds),
		calls:        f.histogram("semel.store.op.duration", "How long calls of the store took.", callBounds),
	}
	x.gauges.make(&f, x, q, s, consumer)
	return x, errors.Join(f.errs...)
}

// family makes instruments and keeps their errors.
type family struct {
	meter metric.Meter
	errs  []error
}

func kept[I any](f *family, i I, err error) I {
	if err != nil {
		f.errs = append(f.errs, err)
	}
	return i
}

func (f *family) counter(name, unit, what string) metric.Int64Counter {
	i, err := f.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return kept(f, i, err)
}

func (f *family) histogram(name, what string, bounds []float64) metric.Float64Histogram {
	i, err := f.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	return kept(f, i, err)
}

// with is the attributes of a measurement: queue, consumer, and one more.
func (m *metrics) with(name, value string) metric.MeasurementOption {
	return metric.WithAttributes(append(m.base.ToSlice(), attribute.String(name, value))...)
}

func (m *metrics) events() semel.Events {
	return semel.Events{Delivery: m.delivery, Attempt: m.attempt, Lease: m.lease, Health: m.health, Calls: m.called}
}

// in is the context of a measurement: exemplars take the run's span out of it.
func in(e *semel.Event) context.Context {
	if e.Trace == "" {
		return context.Background()
	}
	return contextOf(spanOf(e.Trace))
}

func (m *metrics) delivery(e semel.Event) {
	ctx, base := in(&e), metric.WithAttributeSet(m.base)
	switch e.Kind {
	case semel.EventDecided:
		m.deliveries.Add(ctx, 1, m.with("decision", string(e.Decision)))
		if e.Cause != "" {
			m.duplicates.Add(ctx, 1, m.with("cause", string(e.Cause)))
		}
		switch e.Decision {
		case semel.Executed:
			m.effects.Add(ctx, 1, base)
		case semel.Fenced:
			m.leaseLost.Add(ctx, 1, base)
		}
	case semel.EventSettled:
		if e.Handled > 0 {
			m.overhead.Record(ctx, max(e.Elapsed-e.Handled, 0).Seconds(), base)
		}
		if e.Outcome != driver.Applied && e.Outcome != driver.Settled {
			m.settleErrors.Add(ctx, 1, m.with("reason", e.Outcome.String()))
		}
	}
}

func (m *metrics) attempt(e semel.Event) {
	ctx, base := in(&e), metric.WithAttributeSet(m.base)
	switch e.Kind {
	case semel.EventStarted:
		if e.Attempt <= 1 && !e.SentAt.IsZero() {
			m.inQueue.Record(ctx, max(e.At.Sub(e.SentAt), 0).Seconds(), base)
		}
	case semel.EventEnded:
		m.handler.Record(ctx, e.Elapsed.Seconds(), base)
	case semel.EventDoubt:
		m.doubts.Add(ctx, 1, base)
	}
}

func (m *metrics) lease(e semel.Event) {
	to := m.visibilities
	if e.Lease {
		to = m.leases
	}
	to.Add(in(&e), 1, m.with("result", e.Outcome.String()))
}

func (m *metrics) health(e semel.Event) {
	ctx, base := context.Background(), metric.WithAttributeSet(m.base)
	switch e.Kind {
	case semel.EventPaused:
		m.pauses.Add(ctx, 1, base)
	case semel.EventSwept:
		m.swept.Add(ctx, int64(e.Purged), base)
		m.expired.Add(ctx, int64(e.Expired), base)
		m.parked.Add(ctx, int64(e.Abandoned), base)
		m.gauges.lag.Store(&e.Lag)
	}
}

func (m *metrics) called(e semel.Event) {
	m.calls.Record(context.Background(), e.Elapsed.Seconds(), m.with("op", e.Op))
	if e.Err != nil {
		m.storeErrors.Add(context.Background(), 1, m.with("op", e.Op))
	}
}

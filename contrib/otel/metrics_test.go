package semelotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	semelotel "github.com/semel-dev/semel/contrib/otel"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// TestMetricsHaveTheNamesOfProm: the instruments become the series of package prom in Prometheus, with the same labels, so that
// rules and dashboard fit both.
func TestMetricsHaveTheNamesOfProm(t *testing.T) {
	db := memory.Open()
	reader := sdkmetric.NewManualReader()
	cfg := semel.Config{
		Queue: db.Queue("orders"), Store: cache.New(db.Store(), cache.Options{Size: 8}),
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
	}
	reg := prometheus.NewPedanticRegistry()
	p, err := prom.New(reg, prom.Options{Queue: cfg.Queue, Store: cfg.Store})
	if err != nil {
		t.Fatal(err)
	}
	tel, err := semelotel.Instrument(&cfg, semelotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tel.Watch(c)
	p.Watch(c)
	happen(semel.Tee(p.Events(), cfg.Events))

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got, want := map[string][]string{}, map[string][]string{}
	for _, s := range collected.ScopeMetrics {
		for _, m := range s.Metrics {
			name, labels := translated(t, m)
			got[name] = labels
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			want[f.GetName()] = append(want[f.GetName()], l.GetName())
		}
	}
	for name, labels := range want {
		slices.Sort(labels)
		if !slices.Equal(got[name], labels) {
			t.Errorf("%s has labels %v, want %v", name, got[name], labels)
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("package prom has no %s", name)
		}
	}
}

// happen makes every counter and histogram appear.
func happen(e semel.Events) {
	m := &semel.Message{ID: "1"}
	at := time.Now()
	for _, d := range []semel.Decision{semel.Executed, semel.Fenced} {
		e.Delivery(semel.Event{Kind: semel.EventDecided, At: at, Message: m, Decision: d, Cause: semel.Redelivery})
	}
	e.Delivery(semel.Event{Kind: semel.EventSettled, At: at, Message: m, Outcome: driver.Unknown, Elapsed: 2, Handled: 1})
	e.Attempt(semel.Event{Kind: semel.EventStarted, At: at, Message: m, SentAt: at})
	e.Attempt(semel.Event{Kind: semel.EventEnded, At: at, Message: m})
	e.Attempt(semel.Event{Kind: semel.EventDoubt, At: at, Message: m})
	e.Lease(semel.Event{Kind: semel.EventExtended, Lease: true, Message: m})
	e.Lease(semel.Event{Kind: semel.EventExtended, Message: m})
	e.Health(semel.Event{Kind: semel.EventPaused})
	e.Health(semel.Event{Kind: semel.EventSwept})
	e.Calls(semel.Event{Kind: semel.EventCalled, Op: "claim", Err: errors.New("no")})
}

// translated is the name and the labels of a metric in Prometheus
// (https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
func translated(t *testing.T, m metricdata.Metrics) (name string, labels []string) {
	t.Helper()
	name = strings.ReplaceAll(m.Name, ".", "_")
	switch {
	case m.Unit == "s":
		name += "_seconds"
	case m.Unit != "" && !strings.HasPrefix(m.Unit, "{"):
		t.Errorf("%s has unit %q", m.Name, m.Unit)
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		name += "_total"
		labels = labelsOf(d.DataPoints[0].Attributes.ToSlice())
	case metricdata.Gauge[int64]:
		labels = labelsOf(d.DataPoints[0].Attributes.ToSlice())
	case metricdata.Gauge[float64]:
		labels = labelsOf(d.DataPoints[0].Attributes.ToSlice())
	case metricdata.Histogram[float64]:
		labels = labelsOf(d.DataPoints[0].Attributes.ToSlice())
	default:
		t.Errorf("%s is a %T", m.Name, d)
	}
	return name, labels
}

func labelsOf(attributes []attribute.KeyValue) (labels []string) {
	for _, a := range attributes {
		labels = append(labels, string(a.Key))
	}
	return labels
}

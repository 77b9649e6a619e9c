package emf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/emf"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// document is a line as CloudWatch reads it.
type document struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
	values map[string]any
}

// read checks a line against the specification: every named metric and dimension has a value of the right type, and there
// are at most 100 metrics with at most 100 values each.
func read(t *testing.T, b []byte) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if err := json.Unmarshal(b, &d.values); err != nil {
		t.Fatal(err)
	}
	if d.AWS.Timestamp == 0 || len(d.AWS.CloudWatchMetrics) != 1 {
		t.Fatalf("no directive: %s", b)
	}
	m := d.AWS.CloudWatchMetrics[0]
	if len(m.Metrics) == 0 || len(m.Metrics) > 100 || len(m.Dimensions) != 1 || len(m.Dimensions[0]) > 30 {
		t.Errorf("%d metrics, dimensions %v", len(m.Metrics), m.Dimensions)
	}
	for _, name := range m.Dimensions[0] {
		if _, ok := d.values[name].(string); !ok {
			t.Errorf("dimension %s is no string: %v", name, d.values[name])
		}
	}
	for _, x := range m.Metrics {
		switch v := d.values[x.Name].(type) {
		case float64:
		case []any:
			if len(v) == 0 || len(v) > 100 {
				t.Errorf("%s has %d values", x.Name, len(v))
			}
		default:
			t.Errorf("metric %s has no number: %v", x.Name, v)
		}
		if x.Unit != "Count" && x.Unit != "Seconds" {
			t.Errorf("metric %s has unit %q", x.Name, x.Unit)
		}
	}
	return d
}

// TestS2_16Consumer: a line a minute, with the metrics since the line before, and a last one at the end.
func TestS2_16Consumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q := db.Queue("orders")
		var out bytes.Buffer
		m, err := emf.New(&out, emf.Options{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"1", "2", "3"} {
			if err := q.Send(t.Context(), semel.Message{ID: id, Body: []byte("same")}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := semel.New(semel.Config{
			Queue: q, Store: db.Store(), Limit: 3, Events: m.Events(),
			Key: func(m *semel.Message) (string, error) { return string(m.Body), nil },
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
				time.Sleep(90 * time.Second)
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		if len(lines) != 2 {
			t.Fatalf("%d lines in a minute and a half, want 2:\n%s", len(lines), &out)
		}
		sum := map[string]float64{}
		for i, b := range lines {
			d := read(t, b)
			if ns := d.AWS.CloudWatchMetrics[0].Namespace; ns != "Semel" || d.values["Queue"] != "orders" || d.values["Consumer"] != "orders" {
				t.Errorf("line %d is of %s %v", i, ns, d.values)
			}
			for name, v := range d.values {
				if n, ok := v.(float64); ok {
					sum[name] += n
				}
			}
			if i == 0 && (d.values["Running"] != 1.0 || d.values["InFlight"] != 3.0) {
				t.Errorf("while the handler runs: %v", d.values)
			}
		}
		for name, want := range map[string]float64{"Deliveries": 3, "Effects": 1, "DuplicatesSuppressed": 2, "LeasesLost": 0, "DeadLettered": 0} {
			if sum[name] != want {
				t.Errorf("%s is %v in all, want %v", name, sum[name], want)
			}
		}
		if v, ok := read(t, lines[1]).values["HandlerDuration"].([]any); !ok || len(v) != 1 || v[0] != 90.0 {
			t.Errorf("HandlerDuration is %v, want [90]", v)
		}
	})
}

// TestS2_16Names: the metric with the names that the alarm of a state machine uses.
func TestS2_16Names(t *testing.T) {
	var out bytes.Buffer
	err := emf.Count(&out, "Custom/StepFunctions", "DuplicateExecutions", 1, [2]string{"StateMachine", "CSV-Processing"})
	if err != nil {
		t.Fatal(err)
	}
	d := read(t, out.Bytes())
	m := d.AWS.CloudWatchMetrics[0]
	if m.Namespace != "Custom/StepFunctions" || d.values["DuplicateExecutions"] != 1.0 || d.values["StateMachine"] != "CSV-Processing" ||
		m.Dimensions[0][0] != "StateMachine" || m.Metrics[0].Name != "DuplicateExecutions" {
		t.Errorf("%s", &out)
	}
	for name, err := range map[string]error{
		"namespace": emf.Count(&out, "AWS/SQS", "X", 1),
		"no name":   emf.Count(&out, "X", "", 1),
		"dimension": emf.Count(&out, "X", "Y", 1, [2]string{"Queue", ""}),
	} {
		if err == nil {
			t.Errorf("%s: what CloudWatch drops was written", name)
		}
	}
}

// TestWhatCloudWatchDropsIsRefused: CloudWatch silently drops a line with an invalid dimension, so New and Count refuse it.
func TestWhatCloudWatchDropsIsRefused(t *testing.T) {
	db := memory.Open()
	for text, ok := range map[string]bool{
		"orders": true, "a b": true, "~": true, strings.Repeat("x", 1024): true,
		strings.Repeat("x", 1025): false, "bücher": false, " ": false, "\t": false, ":orders": false, "a\nb": false, "a\x7f": false, "a\xff": false,
	} {
		_, consumer := emf.New(io.Discard, emf.Options{Queue: db.Queue("orders"), Consumer: text})
		_, queue := emf.New(io.Discard, emf.Options{Queue: db.Queue(text), Consumer: "orders"})
		value := emf.Count(io.Discard, "X", "Y", 1, [2]string{"Queue", text})
		for what, err := range map[string]error{"consumer": consumer, "queue": queue, "value": value} {
			if (err == nil) != ok {
				t.Errorf("%s %.20q: %v", what, text, err)
			}
		}
		if len(text) < 250 {
			name := emf.Count(io.Discard, "X", "Y", 1, [2]string{text, "v"})
			metric := emf.Count(io.Discard, "X", text, 1)
			if (name == nil) != ok || (metric == nil) != ok {
				t.Errorf("name and metric %.20q: %v, %v", text, name, metric)
			}
		}
	}
}

type flaky struct {
	bytes.Buffer
	down bool
}

func (f *flaky) Write(b []byte) (int, error) {
	if f.down {
		return 0, errors.New("no space left on device")
	}
	return f.Buffer.Write(b)
}

type silent struct{ *memory.Queue }

func (silent) Stats(context.Context) (driver.QueueStats, error) {
	return driver.QueueStats{}, errors.New("connection refused")
}

// uncertain is a store that lists its uncertain records.
type uncertain struct{ *memory.Store }

func (s uncertain) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.ListsUncertain = true
	return f
}

// TestUncertain: a claim that a sweep parked is as uncertain as a message that was set aside, but has no delivery. Every
// line has the number of uncertain keys.
func TestUncertain(t *testing.T) {
	db := memory.Open()
	store := uncertain{db.Store()}
	g, err := store.Claim(t.Context(), driver.Claim{Key: driver.Key{Consumer: "orders", Raw: "a"}, Nonce: driver.Nonce{1}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Park}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	m, err := emf.New(&out, emf.Options{Queue: db.Queue("orders"), Store: store})
	if err != nil {
		t.Fatal(err)
	}
	m.Events().Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.ParkedUncertain})
	m.Events().Health(semel.Event{Kind: semel.EventSwept, Abandoned: 2})
	for _, want := range []float64{3, 0} {
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := read(t, out.Bytes()); d.values["Uncertain"] != want || d.values["UncertainKeys"] != 1.0 {
			t.Errorf("%v, want %v uncertain, and one of them still", d.values, want)
		}
		out.Reset()
	}
}

// TestNothingIsForgotten: the next line has metrics that could not be written. A queue that does not respond costs only its
// own metrics. Of many handler times a sample is kept.
func TestNothingIsForgotten(t *testing.T) {
	out := &flaky{down: true}
	m, err := emf.New(out, emf.Options{Queue: silent{memory.Open().Queue("orders")}, Namespace: "Shop"})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		m.Events().Attempt(semel.Event{Kind: semel.EventEnded, Elapsed: time.Second})
		m.Events().Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.DeadLettered})
	}
	m.Events().Health(semel.Event{Kind: semel.EventSwept, Purged: 12})
	if err := m.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
	out.down = false
	m.Events().Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.DeadLettered})
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := read(t, out.Bytes())
	if d.values["DeadLettered"] != 1001.0 || d.values["RecordsSwept"] != 12.0 {
		t.Errorf("after a lost line: %v", d.values)
	}
	if _, ok := d.values["Visible"]; ok {
		t.Error("an unknown depth is reported")
	}
	if v, _ := d.values["HandlerDuration"].([]any); len(v) != 100 {
		t.Errorf("%d times of 1000, want the 100 that fit in a line", len(v))
	}
}

package prom_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// consume runs a consumer over what is in the queue: n deliveries.
func consume(t *testing.T, m *prom.Metrics, q driver.Queue, s driver.Store, n int, h semel.HandlerFunc) {
	t.Helper()
	c, err := semel.New(semel.Config{
		Queue: q, Store: s, Handler: h, Events: m.Events(), Limit: n, MaxAttempts: 1, Concurrency: 1,
		Logger: slog.New(slog.DiscardHandler),
		Key:    func(m *semel.Message) (string, error) { return string(m.Body), nil }, Visibility: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(c)
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, q driver.Sender, bodies ...string) {
	t.Helper()
	for i, b := range bodies {
		if err := q.Send(t.Context(), semel.Message{ID: b + string(rune('0'+i)), Body: []byte(b), SentAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestS1_18Metrics: what happened is counted under the names of the contract, each duplicate by its cause, and no effect
// more than there was.
func TestS1_18Metrics(t *testing.T) {
	db := memory.Open()
	q := db.Queue("orders")
	store := cache.New(db.Store(), cache.Options{Size: 10, Strangers: true})
	reg := prometheus.NewPedanticRegistry()
	m, err := prom.New(reg, prom.Options{Queue: q, Store: store, Every: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	send(t, q, "a", "b", "a", "dead")
	consume(t, m, q, store, 4, func(_ context.Context, a *semel.Attempt) error {
		time.Sleep(2 * time.Millisecond) // what the histogram is to see
		if a.Key.Raw == "dead" {
			return semel.Permanent(errors.New("no such customer"))
		}
		return nil
	})
	send(t, q, "later")

	const labels = `consumer="orders",queue="orders"`
	text := strings.ReplaceAll(`
semel_deliveries_total{LABELS,decision="dead_lettered"} 1
semel_deliveries_total{LABELS,decision="executed"} 2
semel_deliveries_total{LABELS,decision="replayed"} 1
semel_effects_total{LABELS} 2
semel_dlq_depth{LABELS} 1
semel_queue_depth{LABELS,state="delayed"} 0
semel_queue_depth{LABELS,state="in_flight"} 0
semel_queue_depth{LABELS,state="visible"} 1
semel_queue_up{LABELS} 1
semel_inflight{LABELS} 0
semel_slots{LABELS} 1
semel_paused{LABELS,reason="store"} 0
semel_paused{LABELS,reason="downstream"} 0
semel_breaker_state{LABELS} 0
semel_lease_lost_total{LABELS} 0
`, "LABELS", labels)
	got := scrape(t, reg)
	for line := range strings.Lines(text) {
		line = normal(strings.TrimSpace(line))
		if line != "" && !strings.Contains(got, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
	for _, name := range []string{"semel_handler_duration_seconds", "semel_time_in_queue_seconds", "semel_overhead_seconds"} {
		if n := count(t, reg, name); n != 3 {
			t.Errorf("%s has %d observations, want 3: one for each run", name, n)
		}
	}
	// The cause depends on whether the copy was received while the original ran.
	if n := regexp.MustCompile(`\nsemel_duplicates_total\{cause="(raced_local|producer_duplicate)",[^}]*\} 1\n`).FindAllString(got, -1); len(n) != 1 {
		t.Errorf("one duplicate is counted as %q", n)
	}
	for _, op := range []string{"claim", "finish"} {
		if !strings.Contains(got, `op="`+op+`"`) {
			t.Errorf("no semel_store_op_duration_seconds of %s", op)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("names: %v, %v", problems, err)
	}
}

// TestS1_18AllNames: a scrape has every name that contract section 8 gives a consumer, from the start.
func TestS1_18AllNames(t *testing.T) {
	db := memory.Open()
	reg := prometheus.NewPedanticRegistry()
	store := cache.New(db.Store(), cache.Options{Size: 10})
	m, err := prom.New(reg, prom.Options{Queue: db.Queue("orders"), Store: store})
	if err != nil {
		t.Fatal(err)
	}
	e := m.Events()
	e.Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.Fenced, Cause: semel.Redelivery})
	e.Delivery(semel.Event{Kind: semel.EventSettled, Outcome: driver.Lost})
	e.Lease(semel.Event{Kind: semel.EventExtended, Lease: true, Outcome: driver.Applied})
	e.Lease(semel.Event{Kind: semel.EventExtended, Outcome: driver.Unknown})
	e.Health(semel.Event{Kind: semel.EventSwept, Purged: 7, Expired: 3, Abandoned: 2, Lag: 90 * time.Second})
	e.Calls(semel.Event{Kind: semel.EventCalled, Op: "claim", Err: errors.New("down")})
	c, err := semel.New(semel.Config{Queue: db.Queue("orders"), Store: store, Handler: semel.HandlerFunc(nothing)})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(c)
	got := scrape(t, reg)
	for _, line := range []string{
		`semel_lease_lost_total{} 1`, `semel_settle_errors_total{reason="lost"} 1`, `semel_lease_extensions_total{result="applied"} 1`,
		`semel_visibility_extensions_total{result="unknown"} 1`, `semel_sweep_deleted_total{} 7`, `semel_sweep_parked_total{} 2`, `semel_sweep_lag_seconds{} 90`,
		`semel_store_errors_total{op="claim"} 1`, `semel_doubts_total{} 0`, `semel_pauses_total{} 0`, `semel_cache_hits_total{} 0`,
		`semel_cache_entries{} 0`, `semel_cache_size{} 10`, `semel_late_messages_total{} 0`, `semel_sweep_expired_total{} 3`,
		`semel_oldest_message_age_seconds{} 0`,
	} {
		name, rest, _ := strings.Cut(line, "{")
		pair, value, _ := strings.Cut(rest, "} ")
		if !regexp.MustCompile(regexp.QuoteMeta(name) + `\{[^}]*` + regexp.QuoteMeta(pair) + `[^}]*\} ` + value + "\n").MatchString(got) {
			t.Errorf("missing %s", line)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func nothing(context.Context, *semel.Attempt) error { return nil }

// broken is a queue that does not respond, and counts its requests.
type broken struct {
	*memory.Queue
	asked atomic.Int32
}

func (q *broken) Stats(context.Context) (driver.QueueStats, error) {
	q.asked.Add(1)
	return driver.QueueStats{}, errors.New("connection refused")
}

// TestQueueDown: if a queue does not respond, only its own figures are missing, and it is not asked at every scrape.
func TestQueueDown(t *testing.T) {
	q := &broken{Queue: memory.Open().Queue("orders")}
	reg := prometheus.NewPedanticRegistry()
	if _, err := prom.New(reg, prom.Options{Queue: q, Every: time.Hour}); err != nil {
		t.Fatal(err)
	}
	scrape(t, reg)
	got := scrape(t, reg)
	if !strings.Contains(got, `semel_queue_up{consumer="orders",queue="orders"} 0`) || strings.Contains(got, "semel_queue_depth{") {
		t.Errorf("an unknown depth is shown:\n%s", got)
	}
	if n := q.asked.Load(); n != 1 {
		t.Errorf("the queue was asked %d times within Every", n)
	}
}

// slow is a queue that takes its time.
type slow struct {
	*memory.Queue
	asked atomic.Int32
}

func (q *slow) Stats(context.Context) (driver.QueueStats, error) {
	q.asked.Add(1)
	time.Sleep(time.Minute)
	return driver.QueueStats{Visible: 7}, nil
}

// TestSlowQueue: a scrape that waited for a slow queue's response to another scrape uses it, and does not ask again.
func TestSlowQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &slow{Queue: memory.Open().Queue("orders")}
		reg := prometheus.NewPedanticRegistry()
		if _, err := prom.New(reg, prom.Options{Queue: q, Every: 10 * time.Second, Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := scrape(t, reg); !strings.Contains(got, `semel_queue_depth{consumer="orders",queue="orders",state="visible"} 7`) {
				t.Error(got)
			}
		}
		if n := q.asked.Load(); n != 1 {
			t.Errorf("the queue was asked %d times: its response had just arrived", n)
		}
	})
}

// lists is a store that lists uncertain records, or fails to.
type lists struct {
	*memory.Store
	err error
}

func (s lists) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.ListsUncertain = true
	return f
}

func (s lists) CountCases(ctx context.Context, consumer string, state driver.State, most int) (int, error) {
	n, err := s.Store.CountCases(ctx, consumer, state, most)
	return n, errors.Join(err, s.err)
}

// TestUncertainKeys: keys in doubt are counted for their own consumer, for as long as they are in doubt, whoever parked them.
// A store that does not respond differs from one without doubts. A store that would have to read everything is not asked.
func TestUncertainKeys(t *testing.T) {
	db := memory.Open()
	for _, consumer := range []string{"orders", "orders", "mails"} {
		key := driver.Key{Consumer: consumer, Raw: rand.Text()}
		g, err := db.Store().Claim(t.Context(), driver.Claim{Key: key, Nonce: driver.Nonce{1}, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Store().Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Park}); err != nil {
			t.Fatal(err)
		}
	}
	const labels = `{consumer="orders",queue="orders"} `
	for name, c := range map[string]struct {
		store         driver.Store
		up, uncertain string
	}{
		"lists":       {lists{db.Store(), nil}, "1", "2"},
		"fails":       {lists{db.Store(), errors.New("connection refused")}, "0", ""},
		"cannot":      {db.Store(), "", ""},
		"not there":   {nil, "", ""},
		"has a cache": {cache.New(lists{db.Store(), nil}, cache.Options{Size: 1}), "1", "2"},
	} {
		reg := prometheus.NewPedanticRegistry()
		if _, err := prom.New(reg, prom.Options{Queue: db.Queue("orders"), Store: c.store}); err != nil {
			t.Fatal(err)
		}
		got := scrape(t, reg)
		if v := series(t, got, "semel_store_up"+labels); v != c.up {
			t.Errorf("a store that %s: semel_store_up is %q, want %q", name, v, c.up)
		}
		if v := series(t, got, "semel_uncertain_keys"+labels); v != c.uncertain {
			t.Errorf("a store that %s: semel_uncertain_keys is %q, want %q", name, v, c.uncertain)
		}
	}
}

// TestSweepLagIsTheWorkers: who sweeps nothing (semel serve) shows no lag. Its 0 would hide what a worker of the same
// consumer tells.
func TestSweepLagIsTheWorkers(t *testing.T) {
	db := memory.Open()
	reg := prometheus.NewPedanticRegistry()
	m, err := prom.New(reg, prom.Options{Queue: db.Queue("orders")})
	if err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, reg); strings.Contains(got, "\nsemel_sweep_lag_seconds") {
		t.Errorf("a lag that nobody measured:\n%s", got)
	}
	c, err := semel.New(semel.Config{Queue: db.Queue("orders"), Store: db.Store(), Handler: semel.HandlerFunc(nothing)})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(c)
	if got := scrape(t, reg); !strings.Contains(got, "\n"+`semel_sweep_lag_seconds{consumer="orders",queue="orders"} 0`) {
		t.Errorf("a worker shows no lag:\n%s", got)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := prom.New(prometheus.NewRegistry(), prom.Options{}); err == nil || !strings.Contains(err.Error(), "Queue") {
		t.Errorf("no queue: %v", err)
	}
	reg := prometheus.NewRegistry()
	q := memory.Open().Queue("orders")
	if _, err := prom.New(reg, prom.Options{Queue: q}); err != nil {
		t.Fatal(err)
	}
	if _, err := prom.New(reg, prom.Options{Queue: q}); err == nil || !strings.Contains(err.Error(), "orders") {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := prom.New(reg, prom.Options{Queue: q, Consumer: "audit"}); err != nil {
		t.Errorf("another consumer of the queue: %v", err)
	}
}

func scrape(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// normal puts the labels of a line in the order of a scrape.
func normal(line string) string {
	name, rest, ok := strings.Cut(line, "{")
	if !ok {
		return line
	}
	labels, value, _ := strings.Cut(rest, "}")
	parts := strings.Split(labels, ",")
	slices.Sort(parts)
	return name + "{" + strings.Join(parts, ",") + "}" + value
}

func count(t *testing.T, reg *prometheus.Registry, name string) (n uint64) {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

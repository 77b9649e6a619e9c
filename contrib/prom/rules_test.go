package prom_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

var metricName = regexp.MustCompile(`\bsemel_[a-z_]+`)

// TestRulesAndDashboardNameWhatThereIs: a rule about a metric that nobody shows never fires. (tests/alerts lets Prometheus
// evaluate them.)
func TestRulesAndDashboardNameWhatThereIs(t *testing.T) {
	db := memory.Open()
	q := db.Queue("orders")
	store := cache.New(lists{db.Store(), nil}, cache.Options{Size: 1})
	reg := prometheus.NewRegistry()
	m, err := prom.New(reg, prom.Options{Queue: q, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prom.Duplicates(reg, "orders", "orders"); err != nil {
		t.Fatal(err)
	}
	if err := prom.Audited(reg, "orders", "orders", time.Now()); err != nil {
		t.Fatal(err)
	}
	c, err := semel.New(semel.Config{Queue: q, Store: store, Handler: semel.HandlerFunc(nothing)})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(c)
	e := m.Events()
	e.Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.Replayed, Cause: semel.Redelivery})
	e.Lease(semel.Event{Kind: semel.EventExtended, Lease: true, Outcome: driver.Applied})
	e.Calls(semel.Event{Kind: semel.EventCalled, Op: "claim", Err: semel.ErrBusy})
	shown := scrape(t, reg)

	var text strings.Builder
	if err := prom.WriteRules(&text, prom.DefaultThresholds); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String(), "«»") {
		t.Error("a threshold is not filled in")
	}
	if err := prom.WriteDashboard(&text); err != nil {
		t.Fatal(err)
	}
	names := metricName.FindAllString(text.String(), -1)
	if len(names) < 20 {
		t.Fatalf("only %d names found", len(names))
	}
	for _, name := range names {
		if !strings.Contains(shown, "\n"+name+"{") {
			t.Errorf("%s is in the rules or the dashboard, and nobody shows it", name)
		}
	}
	for _, bad := range []prom.Thresholds{
		{Depth: -1, Age: time.Minute, AuditAge: time.Hour, Fresh: .9, Completed: .9}, {Age: time.Minute, Fresh: .9, Completed: .9},
		{Age: time.Minute, AuditAge: time.Hour, Fresh: .9, Completed: 1},
	} {
		if err := prom.WriteRules(&text, bad); err == nil {
			t.Errorf("rules with %+v were written", bad)
		}
	}
}

func TestDashboardIsJSON(t *testing.T) {
	var b strings.Builder
	if err := prom.WriteDashboard(&b); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &d); err != nil {
		t.Fatal(err)
	}
	ids, rows := map[int]bool{}, []string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (len(p.Targets) == 0) != (p.Type == "row") || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q cannot be shown", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	want := []string{"Guarantee", "Flow, and duplicates by cause", "Unknown outcomes", "Dead letters", "Lag", "Workers and store"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

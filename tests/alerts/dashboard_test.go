package alerts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/contrib/prom"
)

// TestS1_19DashboardQueries: Prometheus evaluates every query of the dashboard, and the panels about duplicates show them by
// cause.
func TestS1_19DashboardQueries(t *testing.T) {
	var b strings.Builder
	if err := prom.WriteDashboard(&b); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &d); err != nil {
		t.Fatal(err)
	}
	rec := recorded(t, strings.ReplaceAll(`semel_duplicates_total{cause="redelivery",W} 0+1x20
semel_duplicates_total{cause="producer_duplicate",W} 0+2x20
semel_deliveries_total{decision="executed",W} 0+97x20`, "W", who))
	shown := map[string]int{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$queue", ".+", "$consumer", ".+").Replace(target.Expr)
			q, err := rec.engine.NewInstantQuery(t.Context(), rec.storage, nil, expr, time.Unix(0, 0).Add(10*time.Minute))
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			v, err := q.Exec(t.Context()).Vector()
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, expr, err)
			}
			shown[p.Title] += len(v)
			q.Close()
		}
	}
	for _, title := range []string{"Duplicates that were suppressed", "Part of deliveries that are duplicates, by cause"} {
		if shown[title] != 2 {
			t.Errorf("%q shows %d causes, want 2", title, shown[title])
		}
	}
}

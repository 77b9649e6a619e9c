package prom_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/memory"
)

// TestS0_06_S0_20_WhileAJobRuns: a worker that takes one message at a time never shows two in flight, however many wait, and
// the extensions of a long job are counted while it runs.
func TestS0_06_S0_20_WhileAJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q := db.Queue("jobs")
		reg := prometheus.NewPedanticRegistry()
		m, err := prom.New(reg, prom.Options{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		send(t, q, "a", "b", "c")
		looks := 0
		c, err := semel.New(semel.Config{
			Queue: q, Store: db.Store(), Events: m.Events(), Limit: 3, Batch: 1, Concurrency: 1, Visibility: 5 * time.Second,
			Key: func(m *semel.Message) (string, error) { return string(m.Body), nil },
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
				const labels = `{consumer="jobs",queue="jobs"} `
				first := series(t, scrape(t, reg), `semel_lease_extensions_total{consumer="jobs",queue="jobs",result="applied"} `)
				for range 15 {
					time.Sleep(time.Second)
					looks++
					if n := series(t, scrape(t, reg), "semel_inflight"+labels); n != "1" {
						t.Errorf("%s in flight", n)
					}
				}
				if last := series(t, scrape(t, reg), `semel_lease_extensions_total{consumer="jobs",queue="jobs",result="applied"} `); last == first {
					t.Errorf("%q extensions of the lease before 15 s of work, and %q after", first, last)
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if looks != 45 {
			t.Errorf("looked %d times, want 15 for each of three messages", looks)
		}
	})
}

// series is the value behind a series in a scrape, empty when it is not there.
func series(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+name)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

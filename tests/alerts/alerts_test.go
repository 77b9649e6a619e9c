// Package alerts lets Prometheus itself judge the alert rules that semel ships.
package alerts

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/memory"
)

const who = `consumer="orders",queue="orders"`

// TestS1_19AlertsFire: each rule is quiet while nothing is wrong, and fires when what it is about happens, for as long as
// the rule waits. The series are one sample a minute, as promtool writes them.
func TestS1_19AlertsFire(t *testing.T) {
	rules, tried := load(t), map[string]bool{}
	for _, c := range []struct {
		alert, series string
		// quiet and firing are when it must not and when it must fire, in minutes.
		quiet, firing int
	}{
		{"SemelDuplicateEffects", `semel_duplicate_effects_total{W} 0 0 0 0 1 1`, 3, 4},
		{"SemelAuditMissing", `semel_audit_timestamp_seconds{W} 0x2000`, 26 * 60, 26*60 + 1},
		{"SemelNoWorkers", `semel_slots{W} 16x20 stale`, 25, 26},
		{"SemelOutcomeUnknown", `semel_uncertain_keys{W} 0x20 1x30`, 20, 21},
		// A store that cannot count them.
		{"SemelOutcomeUnknown", `semel_deliveries_total{decision="parked_uncertain",W} 0x20 1x30`, 20, 22},
		{"SemelOutcomeUnknown", `semel_sweep_parked_total{W} 0x20 1x30`, 20, 22},
		{"SemelDeadLettersWait", `semel_dlq_depth{W} 0x5 3x40`, 14, 17},
		{"SemelQueueDepth", `semel_queue_depth{state="visible",W} 1000x5 1001x40`, 14, 17},
		{"SemelOldestMessage", `semel_oldest_message_age_seconds{W} 900x5 901x40`, 9, 12},
		{"SemelStoreUnreachable", `semel_paused{reason="store",W} 0x5 1x40`, 9, 12},
		{"SemelStoreUnreachable", `semel_store_up{W} 1x5 0x40`, 9, 12},
		{"SemelDownstreamUnavailable", `semel_paused{reason="downstream",W} 0x5 1x40`, 9, 12},
		// A message tries now and then, and fails.
		{"SemelDownstreamUnavailable", `semel_paused{reason="downstream",W} 0x5 1 1 0 1 0 0 1 1 0 1 0 1`, 9, 12},
		{"SemelSomeWorkersPaused", `semel_paused{reason="store",W,instance="a"} 0x5 1x40
semel_paused{reason="store",W,instance="b"} 0x50`, 9, 12},
		{"SemelSomeWorkersPaused", `semel_queue_up{W,instance="a"} 1x5 0x40
semel_queue_up{W,instance="b"} 1x50`, 9, 12},
		{"SemelQueueUnreachable", `semel_queue_up{W} 1x5 0x40`, 9, 12},
		{"SemelLeasesLost", `semel_lease_lost_total{W} 0x20 3x30
semel_handler_duration_seconds_count{W} 0+10x50`, 20, 22},
		{"SemelOutcomeUnknownOld", `semel_uncertain_keys{W} 0x20 1x1500`, 24*60 + 20, 24*60 + 21},
		{"SemelTakeoverStorm", `semel_deliveries_total{decision="taken_over",W} 0x20 0+2x30
semel_handler_duration_seconds_count{W} 0+10x50`, 22, 30},
		{"SemelRetryStorm", `semel_deliveries_total{decision="retried",W} 0x20 0+5x60
semel_deliveries_total{decision="executed",W} 0+2x80`, 35, 50},
		{"SemelStoreSlow", `semel_store_op_duration_seconds_bucket{op="claim",le="1",W} 0+10x20 200x60
semel_store_op_duration_seconds_bucket{op="claim",le="2.5",W} 0+10x80
semel_store_op_duration_seconds_bucket{op="claim",le="+Inf",W} 0+10x80`, 29, 33},
		{"SemelStoreErrors", `semel_store_errors_total{op="claim",W} 0x20 0+2x30
semel_store_op_duration_seconds_count{op="claim",W} 0+10x50`, 22, 30},
		{"SemelSettingsDiffer", `semel_info{mode="A",guarantee="once",instance="a",W} 1x100
semel_info{mode="A",guarantee="once",instance="b",W} 1x20 stale
semel_info{mode="A",guarantee="at least once",instance="b",W} _x20 1x80`, 79, 82},
		{"SemelSettingsDiffer", `semel_retention_seconds{instance="a",W} 86400x100
semel_retention_seconds{instance="b",W} 86400x20 3600x80`, 79, 82},
		// An hour of a good day, then all are late: 14.4 % of an hour. A worker that scales up from none has no history.
		{"SemelFreshnessBurnFast", waits(`0+10x60 600x60`), 61, 70},
		{"SemelFreshnessBurnFast", strings.ReplaceAll(waits(`0+10x60 600x60`), `"60"`, `"60.0"`), 61, 70}, // Prometheus 3
		// 7 % are late for hours: too slow for the first pair of windows.
		{"SemelFreshnessBurnFast", waits(`0+10x300 3000+9.3x500`), 400, 700},
		{"SemelFreshnessBurnSlow", waits(`0+10x1000 10000+9.6x1000`), 1002, 1900},
		{"SemelFreshnessBurnSlow", waits(`0+10x1000 10000+9.85x4400`), 2000, 5400},
		{"SemelCompletionBurnFast", ends(`0x60 0+1x60`), 60, 70},
		{"SemelCompletionBurnFast", ends(`0x300 0+0.07x500`), 400, 700},
		{"SemelCompletionBurnSlow", ends(`0x1000 0+0.04x1000`), 1100, 1900},
		{"SemelCompletionBurnSlow", ends(`0x1000 0+0.015x4400`), 2000, 5400},
		{"SemelSweepLate", `semel_sweep_lag_seconds{W} 86400x5 86401x200`, 64, 67},
	} {
		t.Run(c.alert, func(t *testing.T) {
			r, ok := rules[c.alert]
			if !ok {
				t.Fatal("no such rule")
			}
			tried[c.alert] = true
			rec := recorded(t, strings.ReplaceAll(c.series, "W", who))
			for minute, want := range map[int]bool{c.quiet: false, c.firing: true} {
				if got := rec.fires(r, minute); got != want {
					t.Errorf("after %d minutes of %s it fires: %v, want %v", minute, c.series, got, want)
				}
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Error("who is woken up has to know how bad it is, what it is, and what to do")
			}
		})
	}
	for name := range rules {
		if !tried[name] {
			t.Errorf("rule %s is not tried", name)
		}
	}
}

// waits are ten first runs a minute, and how many of them began within a minute.
func waits(early string) string {
	return `semel_time_in_queue_seconds_count{W} 0+10x5760
semel_time_in_queue_seconds_bucket{le="60",W} ` + early
}

// ends are ten successes a minute, and dead letters.
func ends(dead string) string {
	return `semel_deliveries_total{decision="executed",W} 0+10x5760
semel_deliveries_total{decision="dead_lettered",W} ` + dead
}

// TestFewMessagesAreNoRate: one dead letter of a small queue misses the objective of a month, and pages nobody. The rule about
// dead letters reports it.
func TestFewMessagesAreNoRate(t *testing.T) {
	rules := load(t)
	rec := recorded(t, strings.ReplaceAll(`semel_deliveries_total{decision="executed",W} 0+0.01x600
semel_deliveries_total{decision="dead_lettered",W} 0x60 1x540
semel_time_in_queue_seconds_count{W} 0+0.01x600
semel_time_in_queue_seconds_bucket{le="60",W} 0x600`, "W", who))
	for name, r := range rules {
		for _, minute := range []int{61, 65, 300} {
			if strings.Contains(name, "Burn") && rec.fires(r, minute) {
				t.Errorf("%s fires after %d minutes", name, minute)
			}
		}
	}
}

// TestTheFirstIsSeen: what a worker shows before and after the first message that was set aside is what the rule fires on. A
// counter that appears with its first value has increased by nothing.
func TestTheFirstIsSeen(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prom.New(reg, prom.Options{Queue: memory.Open().Queue("orders")})
	if err != nil {
		t.Fatal(err)
	}
	before := sample(t, reg, "semel_deliveries_total", "parked_uncertain")
	m.Events().Delivery(semel.Event{Kind: semel.EventDecided, Decision: semel.ParkedUncertain})
	after := sample(t, reg, "semel_deliveries_total", "parked_uncertain")
	series := fmt.Sprintf(`semel_deliveries_total{decision="parked_uncertain",%s} %sx20 %sx10`, who, before, after)
	if !recorded(t, series).fires(load(t)["SemelOutcomeUnknown"], 22) {
		t.Errorf("no alert fires for the first message that was parked: %s", series)
	}
}

// sample is a counter's value as a series is written; _ when it is not shown.
func sample(t *testing.T, reg *prometheus.Registry, name, decision string) string {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "decision" && l.GetValue() == decision {
					return fmt.Sprint(m.GetCounter().GetValue())
				}
			}
		}
	}
	return "_"
}

// TestS2_17SuppressedIsNoAlarm: a thousand duplicates that did no harm, conditional writes that were refused, and a lease lost
// now and then among very many runs wake nobody up.
func TestS2_17SuppressedIsNoAlarm(t *testing.T) {
	rec := recorded(t, strings.ReplaceAll(`semel_duplicates_total{cause="redelivery",W} 0+100x100
semel_deliveries_total{decision="replayed",W} 0+100x100
semel_deliveries_total{decision="busy_deferred",W} 0+100x100
semel_deliveries_total{decision="executed",W} 0+100x100
semel_deliveries_total{decision="taken_over",W} 0+1x100
semel_duplicate_effects_total{W} 0x100
semel_queue_up{W} 1x100
semel_paused{reason="store",W} 0x100
semel_paused{reason="downstream",W} 0x100
semel_store_up{W} 1x100
semel_slots{W} 16x100
semel_uncertain_keys{W} 0x100
semel_sweep_parked_total{W} 0x100
semel_audit_timestamp_seconds{W} 0x100
semel_dlq_depth{W} 0x100
semel_queue_depth{state="visible",W} 10x100
semel_queue_depth{state="in_flight",W} 100000x100
semel_oldest_message_age_seconds{W} 60x100
semel_sweep_lag_seconds{W} 60x100
semel_info{mode="A",guarantee="once",W,instance="a"} 1x100
semel_info{mode="A",guarantee="once",W,instance="b"} 1x100
semel_retention_seconds{W} 86400x100
semel_store_op_duration_seconds_count{op="claim",W} 0+1000x100
semel_store_op_duration_seconds_bucket{op="claim",le="1",W} 0+1000x100
semel_store_op_duration_seconds_bucket{op="claim",le="+Inf",W} 0+1000x100
semel_store_errors_total{op="claim",W} 0+1x100
semel_deliveries_total{decision="retried",W} 0+1x100
semel_time_in_queue_seconds_count{W} 0+1000x100
semel_time_in_queue_seconds_bucket{le="60",W} 0+1000x100
semel_handler_duration_seconds_count{W} 0+1000x100
semel_lease_lost_total{W} 0+1x100`, "W", who))
	for name, r := range load(t) {
		for _, minute := range []int{1, 30, 90} {
			if rec.fires(r, minute) {
				t.Errorf("%s fires after %d minutes, and nothing is wrong", name, minute)
			}
		}
	}
}

// load reads the rules as Prometheus does.
func load(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	var text strings.Builder
	if err := prom.WriteRules(&text, prom.DefaultThresholds); err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse([]byte(text.String()), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("Prometheus refuses the rules: %v", errs)
	}
	rules, records := map[string]rulefmt.Rule{}, []string{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				records = append(records, r.Record+" ", "("+r.Expr+") ")
				continue
			}
			r.Expr = strings.NewReplacer(records...).Replace(r.Expr) // as if Prometheus had recorded them
			rules[r.Alert] = r
		}
	}
	return rules
}

// recording is what Prometheus has scraped.
type recording struct {
	*testing.T
	storage storage.Storage
	engine  *promql.Engine
}

func recorded(t *testing.T, series string) *recording {
	t.Helper()
	s := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(series, "\n", "\n  "))
	t.Cleanup(func() { _ = s.Close() })
	return &recording{t, s, promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute})}
}

// fires reports whether the rule fires at a minute: its expression held at every evaluation since its time began.
func (rec *recording) fires(r rulefmt.Rule, minute int) bool {
	rec.Helper()
	from := minute - int(time.Duration(r.For)/time.Minute)
	if from < 0 {
		return false
	}
	for m := from; m <= minute; m++ {
		q, err := rec.engine.NewInstantQuery(rec.Context(), rec.storage, nil, r.Expr, time.Unix(0, 0).Add(time.Duration(m)*time.Minute))
		if err != nil {
			rec.Fatal(err)
		}
		res := q.Exec(rec.Context())
		v, err := res.Vector()
		if err != nil {
			rec.Fatal(fmt.Errorf("%s: %w", r.Expr, err))
		}
		holds := len(v) > 0
		for _, s := range v {
			holds = holds && s.Metric.Get(model.MetricNameLabel) == "" && s.Metric.Get("queue") == "orders"
		}
		q.Close()
		if !holds {
			return false
		}
	}
	return true
}

package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// TestWorkersThatDiffer: workers of one queue with another key, consumer or retention are found; silent ones and those of other
// queues do not count.
func TestWorkersThatDiffer(t *testing.T) {
	set := func(key, retention string) map[string]string {
		return map[string]string{"key": key, "retention": retention}
	}
	now := time.Now()
	for name, c := range map[string]struct {
		other driver.WorkerReport
		want  string
	}{
		"alike":         {driver.WorkerReport{Queue: "q", Consumer: "q", Settings: set("json:/id", "14 days"), Seen: now}, ""},
		"another queue": {driver.WorkerReport{Queue: "r", Consumer: "r", Settings: set("id", "1 day"), Seen: now}, ""},
		"silent":        {driver.WorkerReport{Queue: "q", Consumer: "q", Settings: set("id", "1 day"), Seen: now.Add(-time.Minute)}, ""},
		"key":           {driver.WorkerReport{Queue: "q", Consumer: "q", Settings: set("id", "14 days"), Seen: now}, "differ in key"},
		"no key":        {driver.WorkerReport{Queue: "q", Consumer: "q", Seen: now, Settings: map[string]string{"retention": "14 days"}}, "differ in key"},
		"retention":     {driver.WorkerReport{Queue: "q", Consumer: "q", Settings: set("json:/id", "1 day"), Seen: now}, "differ in retention"},
		"consumer":      {driver.WorkerReport{Queue: "q", Consumer: "c", Settings: set("json:/id", "14 days"), Seen: now}, "differ in consumer"},
	} {
		s := memory.NewStore()
		one := driver.WorkerReport{ID: "1", Name: "a:1", Queue: "q", Consumer: "q", Settings: set("json:/id", "14 days"), Seen: now}
		c.other.ID, c.other.Name = "2", "b:2"
		for _, r := range []driver.WorkerReport{one, c.other} {
			if err := s.ReportWorker(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		all, differ, err := Workers(t.Context(), s, "")
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		if c.want == "" && len(differ) > 0 || c.want != "" && (len(differ) != 1 || !strings.Contains(differ[0].String(), c.want) ||
			!strings.Contains(differ[0].String(), "b:2")) {
			t.Errorf("%s: %v, want %q", name, differ, c.want)
		}
	}
}

// TestExplainNamesTheWorker: the timeline of a key that is in progress names the worker that reported its claim, and not one that
// held it before.
func TestExplainNamesTheWorker(t *testing.T) {
	s := memory.NewStore()
	k := driver.Key{Consumer: "q", Raw: "k"}
	g, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: driver.Nonce{1}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[uint64]string{g[0].Hold.Token: "Worker host:17 has it until", g[0].Hold.Token - 1: "A worker has it until"} {
		err := s.ReportWorker(t.Context(), driver.WorkerReport{
			ID: "w", Name: "host:17", Queue: "q", Consumer: "q", Seen: time.Now(), Holds: []driver.WorkerHold{{Key: "k", Token: token}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Record(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Gather(t.Context(), s, r)
		if got := Explain(in).Verdict; err != nil || !strings.Contains(got, want) {
			t.Errorf("token %d: %q, %v; want %q", token, got, err, want)
		}
	}
}

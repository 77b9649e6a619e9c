package verdict_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict/verdicttest"
)

func TestTimelineFindsTheCauseOfEverySecondCharge(t *testing.T) {
	timeline := verdicttest.Broken().Timeline(t)
	want := map[string]struct {
		cause verdict.DoubleCause
		why   string
	}{
		"order-0001": {verdict.CauseKilled, "worker 1 was killed after the effect, before the ack"},
		"order-0002": {verdict.CauseOverrun, "worker 1 took 2.6 s"},
		"order-0003": {verdict.CauseOverrun, "it waited in the buffer of worker 1 for 2.6 s"},
		"order-0004": {verdict.CauseProducer, "the producer sent it twice"},
	}
	if len(timeline.Doubles) != len(want) {
		t.Errorf("%d doubled orders, want %d", len(timeline.Doubles), len(want))
	}
	for _, d := range timeline.Doubles {
		w := want[d.Key]
		if d.Cause != w.cause || !strings.HasPrefix(d.Why, w.why) || d.Charges != 2 {
			t.Errorf("%s: %s, %q, %d charges", d.Key, d.Cause, d.Why, d.Charges)
		}
	}
}

func TestTimelineDrawsProcessesKillsAndFlow(t *testing.T) {
	timeline := verdicttest.Broken().Timeline(t)
	if len(timeline.Lanes) != 2 || len(timeline.Lanes[0].Processes) != 2 || len(timeline.Lanes[1].Processes) != 1 {
		t.Fatalf("lanes %+v", timeline.Lanes)
	}
	first := timeline.Lanes[0].Processes[0]
	if !first.Killed || first.PID != 101 || first.Step != plan.AfterEffect || !first.Spans[0].Cut || first.Spans[0].Settled {
		t.Errorf("the killed process: %+v, %+v", first, first.Spans[0])
	}
	if len(timeline.Kills) != 1 || timeline.Kills[0].Charges != 2 || timeline.Kills[0].InFlight != 1 || timeline.Kills[0].Key != "order-0001" {
		t.Errorf("kills %+v", timeline.Kills)
	}
	if !maps.Equal(timeline.Flow, map[verdict.Fate]int{verdict.Charged: 5, verdict.Doubled: 4}) {
		t.Errorf("flow %+v", timeline.Flow)
	}
	if timeline.Lanes[0].Processes[1].Rows != 2 {
		t.Errorf("two deliveries at once in %d rows", timeline.Lanes[0].Processes[1].Rows)
	}
}

func TestAboutTellsAnOrderInOrder(t *testing.T) {
	timeline := verdicttest.Broken().Timeline(t)
	var b strings.Builder
	last := -1.0
	for _, l := range timeline.About("order-0001") {
		if l.AtMS < last {
			t.Errorf("out of order at %.0f ms", l.AtMS)
		}
		last = l.AtMS
		fmt.Fprintf(&b, "%s\n", l.Text)
	}
	for _, want := range []string{
		"worker 1 (pid 101) receives m-0001-1", "charged\n", "worker 1 (pid 101) is killed before the ack is seen",
		"worker 2 (pid 201) receives m-0001-1", "charged again: charge 2", "acked",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func TestTimelineGuarded(t *testing.T) {
	f := verdicttest.New(plan.GuardOn)
	f.Spawn(0, 1, 1)
	f.Delivery(1, 1, "order-0001", "m-1", 10, 11, 30, 31)
	f.At(20, eventlog.Entry{Kind: "extended", Worker: 1, Life: 1, Key: "order-0001", Message: "m-1", VisibleMS: 2000, Outcome: "applied"})
	f.At(32, eventlog.Entry{Kind: "decided", Worker: 1, Life: 1, Key: "order-0001", Message: "m-1", Decision: "executed"})
	f.Delivery(1, 1, "order-0001", "m-2", 40, 0, 0, 42)
	f.At(41, eventlog.Entry{
		Kind: "decided", Worker: 1, Life: 1, Key: "order-0001", Message: "m-2", Decision: "replayed", Cause: "producer_duplicate",
	})
	// committed, and killed before the response: not lost, not doubled
	f.Delivery(1, 1, "order-0002", "m-3", 50, 51, 60, 61)
	f.At(62, eventlog.Entry{Kind: eventlog.Struck, Worker: 1, Life: 1, Step: plan.AfterCommit, Key: "order-0002", Message: "m-3"})
	f.Gone(63, 1, 1, "killed")
	f.Sort()
	timeline := f.Timeline(t)
	if !maps.Equal(timeline.Flow, map[verdict.Fate]int{verdict.Charged: 2, verdict.Skipped: 1}) || len(timeline.Doubles) != 0 {
		t.Errorf("flow %+v, doubles %+v", timeline.Flow, timeline.Doubles)
	}
	spans := timeline.Lanes[0].Processes[0].Spans
	if len(spans) != 3 || len(spans[0].Beats) != 1 || spans[0].VisibleUntil != 2020 || !spans[2].Cut {
		t.Errorf("spans %+v %+v", *spans[0], *spans[2])
	}
	text := fmt.Sprint(timeline.About("order-0001"))
	if !strings.Contains(text, "duplicate skipped and acked: the producer sent it twice, and it is done") {
		t.Error(text)
	}
}

package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict/verdicttest"
)

// named is a run of one message, msg-1, whose work takes 1.6 s, in a world that is faster than that of the document.
func named(g plan.Guard, faster float64) (*verdicttest.Fixture, plan.Scenario) {
	f := verdicttest.New(g)
	f.Plan.Sends = []plan.Send{{Key: "msg-1", ID: "m-0001-1", WorkMS: 1600}}
	f.Spawn(0, 1, 1)
	f.Spawn(0, 2, 1)
	s := verdicttest.Scenario()
	s.Load.Name, s.Load.Faster = "msg-1", faster
	return f, s
}

func (lines) of(f *verdicttest.Fixture, s plan.Scenario) (verdict.RunTimeline, lines) {
	v := verdict.Verdict{Timeline: &verdict.Timeline{Scenario: s}}
	v.Add(s, f.Plan, f.Result)
	return v.Timeline.Runs[0], v.Runs[0].Transcript
}

type lines []string

// TestS0_16_TranscriptOfAnOverrun: two starts, one completion, one duplicate; the run whose record was refused has no line.
func TestS0_16_TranscriptOfAnOverrun(t *testing.T) {
	f, s := named(plan.GuardOff, 5)
	say := func(ms, worker int, kind, decision string) {
		f.At(ms, eventlog.Entry{Kind: kind, Worker: worker, Life: 1, Key: "msg-1", Message: "m-0001-1", Decision: decision})
	}
	say(0, 1, "started", "")
	say(1000, 2, "started", "")
	say(1600, 1, eventlog.Recorded, "")
	say(2000, 1, "decided", "replayed")
	say(2600, 2, eventlog.Refused, "")
	f.At(2601, eventlog.Entry{Kind: "started", Worker: 1, Life: 1, Key: "another"})
	timeline, got := lines{}.of(f, s)
	want := lines{"Start msg-1 sleep 8", "Start msg-1 sleep 8", "✅ Completed msg-1", "🔁 Duplicate detect. Skip: msg-1"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if timeline.Transcript[2].Seconds != 8 || timeline.Transcript[2].Worker != 1 || timeline.Refused != 1 {
		t.Errorf("%+v, %d refused", timeline.Transcript, timeline.Refused)
	}
}

// TestS0_17_TranscriptOfAHeartbeat: exactly two lines.
func TestS0_17_TranscriptOfAHeartbeat(t *testing.T) {
	f, s := named(plan.GuardOn, 0)
	f.At(0, eventlog.Entry{Kind: "started", Worker: 1, Life: 1, Key: "msg-1"})
	f.At(500, eventlog.Entry{Kind: "extended", Worker: 1, Life: 1, Key: "msg-1"})
	f.At(1600, eventlog.Entry{Kind: "decided", Decision: "executed", Worker: 1, Life: 1, Key: "msg-1"})
	if _, got := (lines{}).of(f, s); !slices.Equal(got, lines{"Start msg-1 sleep 1.6", "✅ Completed msg-1"}) {
		t.Errorf("got %q", got)
	}
	s.Load.Name = ""
	if timeline, got := (lines{}).of(f, s); got != nil || timeline.Transcript != nil {
		t.Errorf("a message without a name has a transcript: %q", got)
	}
}

// TestTimelineKnowsFrozenWorkersAndForgottenAcks: neither is a handler that took too long.
func TestTimelineKnowsFrozenWorkersAndForgottenAcks(t *testing.T) {
	f := verdicttest.New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	f.Spawn(0, 2, 1)
	f.Delivery(1, 1, "order-0001", "m-1", 100, 110, 120, 4000)
	f.At(121, eventlog.Entry{Kind: eventlog.Struck, Action: string(plan.Freeze), Worker: 1, Life: 1, Key: "order-0001", Message: "m-1"})
	f.At(3900, eventlog.Entry{Kind: eventlog.Thaw, Worker: 1, Life: 1})
	f.Delivery(2, 1, "order-0001", "m-1", 2110, 2120, 2130, 2140)
	f.Delivery(2, 1, "order-0002", "m-2", 3000, 3001, 3010, 3011)
	f.Delivery(2, 1, "order-0002", "m-2", 5100, 5101, 5110, 5111)
	f.At(6000, eventlog.Entry{Kind: eventlog.Down})
	f.At(7000, eventlog.Entry{Kind: eventlog.Up})
	f.Sort()
	timeline := f.Timeline(t)
	got := map[string]string{}
	for _, d := range timeline.Doubles {
		got[d.Key] = string(d.Cause) + ": " + d.Why
	}
	for key, want := range map[string]string{
		"order-0001": "frozen: worker 1 was frozen for 3.8 s with it in flight, the visibility is 2s",
		"order-0002": "forgot: worker 2 acked it, and the queue delivered it again",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if len(timeline.Outages) != 1 || timeline.Outages[0] != (verdict.Frozen{From: 6000, To: 7000}) {
		t.Errorf("outages %+v", timeline.Outages)
	}
}

// TestTimelineKnowsLostAndSetBackKeys: with the words of each.
func TestTimelineKnowsLostAndSetBackKeys(t *testing.T) {
	f := verdicttest.New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	f.Plan.Sends = []plan.Send{{Key: "a", ID: "a-1", Version: 1}, {Key: "a", ID: "a-2", Version: 2}, {Key: "b", ID: "b-1"}}
	f.Delivery(1, 1, "a", "a-2", 10, 11, 20, 21)
	f.Delivery(1, 1, "a", "a-1", 30, 31, 40, 41)
	f.Result.Effects[0].Version, f.Result.Effects[1].Version = 2, 1
	timeline := f.Timeline(t)
	if !slices.Equal(timeline.Lost, []string{"b"}) || !slices.Equal(timeline.SetBack, []string{"a"}) || len(timeline.Doubles) > 0 {
		t.Errorf("lost %v, set back %v, doubled %v", timeline.Lost, timeline.SetBack, timeline.Doubles)
	}
	if timeline.Flow[verdict.Charged] != 1 || timeline.Flow[verdict.Doubled] != 1 {
		t.Errorf("flow %+v", timeline.Flow)
	}
	var lines []string
	for _, l := range timeline.About("a") {
		lines = append(lines, l.Text)
	}
	text := strings.Join(lines, "\n")
	if !strings.Contains(text, "version 2 is applied\n") || !strings.Contains(text, "version 1 is applied over a newer one") {
		t.Error(text)
	}
}

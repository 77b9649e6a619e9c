package ops

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

func TestEventLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 2 { // two workers, one file
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		j := NewEventLog(f)
		for range 1000 {
			j.Add(semel.Event{Kind: semel.EventSettled, At: at, Key: semel.Key{Consumer: "c", Raw: "k"}, Action: driver.Dead, Outcome: driver.Lost, Err: errors.New("why")})
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j.Add(semel.Event{}) // after the end: ignored
	}
	// A crash cuts the last line off.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"kind":"sett`)
	_ = f.Close()
	n := 0
	err = ReadEvents(path, func(l EventLine) {
		n++
		if l.Action != "dead" || l.Outcome != "lost" || l.Error != "why" || l.Key != "k" || !l.At.Equal(at) {
			t.Fatalf("%+v", l)
		}
	})
	if err != nil || n != 2000 {
		t.Errorf("%d lines, %v", n, err)
	}
	if err := os.WriteFile(path, []byte("{}\nnonsense\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadEvents(path, func(EventLine) {}); err == nil || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("got %v", err)
	}
}

// Every state has a verdict, and the doubts are counted as the protocol does.
func TestTimeline(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name   string
		r      driver.Record
		extra  int
		want   string
		advice bool
	}{
		{"absent", driver.Record{}, 0, "no record of this key", false},
		{"clean", driver.Record{State: driver.Completed, Generation: 1, Attempt: 1, Failures: 0}, 0, "no moment of doubt: the effect happened once", false},
		{"failed without effect", driver.Record{State: driver.Completed, Generation: 1, Failures: 2}, 0, "no moment of doubt", false},
		{"two doubts", driver.Record{State: driver.Completed, Generation: 1, Uncertainty: 2, Failures: 2}, 2, "up to twice more", false},
		{"redriven", driver.Record{State: driver.Completed, Generation: 2, Uncertainty: 1}, 1, "up to once more", false},
		{"failed", driver.Record{State: driver.FailedState, Generation: 1, Uncertainty: 1}, 1, "failed for good", true},
		{"disposed", driver.Record{State: driver.FailedState, Generation: 1, Disposed: true}, 0, "was discarded", false},
		{"released", driver.Record{State: driver.Released, Generation: 1}, 0, "waits for its next run; no earlier run", false},
		{"running", driver.Record{State: driver.InProgress, Generation: 1, Uncertainty: 1}, 1, "A worker has it until", true},
		{"uncertain", driver.Record{State: driver.Uncertain, Generation: 1, Uncertainty: 1}, 1, "It is unknown", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.CreatedAt, c.r.UpdatedAt, c.r.CompletedAt, c.r.LeaseUntil = t0, t0, t0, t0
			s := Explain(Facts{Record: c.r, Now: t0})
			if s.ExtraEffects != c.extra || !strings.Contains(s.Verdict, c.want) || (s.Advice != "") != c.advice {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Every decision and kind of event that matters is a sentence, in the order of time.
func TestTimelineEvents(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var lines []EventLine
	add := func(l EventLine) {
		l.At = t0.Add(-time.Duration(len(lines)) * time.Second) // in the wrong order
		lines = append(lines, l)
	}
	for _, d := range []semel.Decision{
		semel.Executed, semel.Replayed, semel.BusyDeferred, semel.Mismatched, semel.Retried, semel.DeadLettered, semel.ParkedUncertain,
		semel.Fenced, semel.Dropped, semel.Returned, semel.Expired,
	} {
		add(EventLine{Kind: "decided", Decision: string(d), MessageID: "m", Cause: string(semel.Redelivery)})
	}
	add(EventLine{Kind: "doubt", Reason: "because"})
	add(EventLine{Kind: "started", Takeover: true})
	add(EventLine{Kind: "extended", Lease: true, Outcome: "lost"})
	add(EventLine{Kind: "settled", Outcome: "unknown"})
	add(EventLine{Kind: "received", Count: 23})
	got := Explain(Facts{Events: lines}).Sentences
	if len(got) != len(lines) {
		t.Fatalf("%d sentences of %d events", len(got), len(lines))
	}
	doubts := 0
	for i, s := range got {
		if i > 0 && s.At.Before(got[i-1].At) {
			t.Errorf("out of order: %v", s)
		}
		if s.Doubt {
			doubts++
		}
	}
	if doubts != 1 || !strings.Contains(got[0].Text, "23rd time") {
		t.Errorf("%d doubts, %q", doubts, got[0].Text)
	}
	if quiet := Explain(Facts{Events: []EventLine{{Kind: "settled", Outcome: "applied"}, {Kind: "extended", Outcome: "applied"}}}); len(quiet.Sentences) != 0 {
		t.Errorf("%+v", quiet.Sentences)
	}
}

// TestTimelineExpiredLease asserts that no worker is said to hold an expired lease.
func TestTimelineExpiredLease(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := driver.Record{
		Key: driver.Key{Consumer: "orders", Raw: "k"}, State: driver.InProgress, Generation: 1, Attempt: 1, Token: 7,
		CreatedAt: t0, UpdatedAt: t0, LeaseUntil: t0.Add(time.Second),
	}
	commands := &CLI{Queue: "'sqlite:q.db?queue=orders'", Store: "'sqlite:q.db?queue=orders'", Own: true}
	live := Explain(Facts{Record: r, Now: t0, CLI: commands})
	if live.LeaseExpired || !strings.Contains(live.Verdict, "A worker has it until") || !strings.Contains(live.Sentences[1].Text, "lasts until") ||
		len(live.Commands) != 1 || live.Commands[0] != "semel records release k --store 'sqlite:q.db?queue=orders'" {
		t.Errorf("live: %+v", live)
	}
	ended := Explain(Facts{Record: r, Now: t0.Add(4 * time.Second), CLI: commands})
	if !ended.LeaseExpired || strings.Contains(ended.Verdict, "has it") || !strings.Contains(ended.Verdict, "ended 3s ago") ||
		!strings.Contains(ended.Verdict, "The next delivery takes over") || !strings.Contains(ended.Sentences[1].Text, "which ended at 2026-01-02T03:04:06") ||
		len(ended.Commands) != 1 || ended.Commands[0] != "semel queue stats --queue 'sqlite:q.db?queue=orders'" {
		t.Errorf("ended: %+v", ended)
	}
}

// TestTimelineRedriven asserts that an operator's redrive appears once, and leaves no doubt of its own.
func TestTimelineRedriven(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := driver.Record{
		State: driver.Released, Generation: 2, Token: 7, Unknown: true, Uncertainty: 1, Reason: "redriven by root@vm", CreatedAt: t0,
		UpdatedAt: t0.Add(time.Second), RetryAt: t0.Add(time.Second),
	}
	operation := driver.AuditEntry{At: r.UpdatedAt, By: "root@vm", Kind: driver.Redrive, From: driver.FailedState, To: driver.Released}
	for name, operations := range map[string][]driver.AuditEntry{"with the audit log": {operation}, "without": nil} {
		s := Explain(Facts{Record: r, Now: t0, Operations: operations})
		text := ""
		for _, x := range s.Sentences {
			text += x.Text + "\n"
			if x.Doubt {
				t.Errorf("%s: a doubt: %s", name, x.Text)
			}
		}
		if strings.Contains(text, "token 7") || strings.Contains(text, "gave") || operations != nil && strings.Count(text, "root@vm") != 1 ||
			operations == nil && !strings.Contains(text, "opened again, because redriven by root@vm") {
			t.Errorf("%s: %s", name, text)
		}
	}
	r.Generation, r.Attempt, r.Reason = 1, 1, "boom"
	if s := Explain(Facts{Record: r, Now: t0}); !s.Sentences[1].Doubt || !strings.Contains(s.Sentences[1].Text, "token 7) released the key") && !strings.Contains(s.Sentences[1].Text, "token 7 released the key, because boom") {
		t.Errorf("a failed run: %+v", s.Sentences)
	}
}

// TestTimelineDuplicates asserts that a duplicate appears once, even if both the store and an events file have it.
func TestTimelineDuplicates(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := driver.Record{State: driver.Completed, Generation: 1, Attempt: 1, CreatedAt: t0, CompletedAt: t0}
	dup := func(id string, sec int) driver.Duplicate {
		return driver.Duplicate{
			MessageID: id, At: t0.Add(time.Duration(sec) * time.Second), Worker: "vm:7", Queue: "orders", Count: 2, Decision: "replayed", Cause: "redelivery",
		}
	}
	known := Facts{
		Record: r, Now: t0, Duplicates: Duplicates{Kept: true, Total: 9, Newest: []driver.Duplicate{dup("m1", 1), dup("m2", 2)}},
		Events: []EventLine{{Kind: "decided", MessageID: "m1", At: t0.Add(time.Second + 300), Decision: "replayed", Worker: "vm:7"}},
	}
	s := Explain(known)
	text := ""
	for _, x := range s.Sentences {
		text += x.Text + "\n"
	}
	if strings.Count(text, "Message m1 was a duplicate") != 1 ||
		strings.Count(text, "Message m2 was a duplicate (a redelivery): it was acknowledged without a run, the stored result stands. "+
			"Worker vm:7 had received it from queue orders, for the 2nd time.") != 1 {
		t.Error(text)
	}
	if s.Duplicates != 9 || !strings.Contains(s.DuplicatesNote, "only the newest 2 of 9 are kept") || !strings.Contains(s.DuplicatesNote, "some are missing") {
		t.Errorf("%d, %s", s.Duplicates, s.DuplicatesNote)
	}
	// A second message of a failed key has no dead letter of its own.
	dead := dup("m3", 3)
	dead.Decision, dead.Cause = "dead_lettered", "producer_duplicate"
	known.Duplicates.Newest = []driver.Duplicate{dead}
	if got := Explain(known).Sentences; !slices.ContainsFunc(got, func(x Sentence) bool {
		return strings.Contains(x.Text, "Message m3 was a duplicate (a second message with the same key): it was dead-lettered without a run. "+
			"A failed key has one dead letter")
	}) {
		t.Error(got)
	}
	known.Duplicates = Duplicates{}
	if s := Explain(known); !strings.Contains(s.DuplicatesNote, "keeps no duplicates") {
		t.Error(s.DuplicatesNote)
	}
}

// TestTimelineTrace asserts that the trace of a run is named, and is no part of its reason.
func TestTimelineTrace(t *testing.T) {
	const trace = driver.Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for state, want := range map[driver.State]string{
		driver.Completed:   "completed the key: too old (trace 0af7651916cd43dd8448eb211c80319c).",
		driver.FailedState: "because too old (trace 0af7651916cd43dd8448eb211c80319c).",
	} {
		r := driver.Record{State: state, Generation: 1, CreatedAt: at, UpdatedAt: at, CompletedAt: at, Reason: driver.AppendTrace("too old", trace)}
		if s := Explain(Facts{Record: r, Now: at}); !strings.HasSuffix(s.Sentences[1].Text, want) {
			t.Errorf("%q, wanted %q at its end", s.Sentences[1].Text, want)
		}
	}
}

// TestCommandsName: commands name the key, the consumer and the tenant where they have to, and the dead letter by its id.
func TestCommandsName(t *testing.T) {
	r := driver.Record{Key: driver.Key{Consumer: "mart", Tenant: "t 1", Raw: "-k"}, State: driver.Uncertain, Token: 7}
	commands := &CLI{Store: "dynamodb://records", Queue: `"$SEMEL_QUEUE"`, Consumer: "mart"}
	s := Explain(Facts{Record: r, CLI: commands})
	want := `semel records resolve --as retry --store dynamodb://records --queue "$SEMEL_QUEUE" --consumer mart --tenant 't 1' -- -k`
	if len(s.Commands) != 3 || s.Commands[1] != want {
		t.Errorf("%q, want %s", s.Commands, want)
	}
	r.State = driver.FailedState
	s = Explain(Facts{Record: r, CLI: commands})
	want = "semel dlq redrive " + driver.DeadLetterID(driver.DeadLetterFailed, r.Key, 7, "") + ` --queue "$SEMEL_QUEUE" --store dynamodb://records --consumer mart`
	if len(s.Commands) != 3 || s.Commands[1] != want {
		t.Errorf("%q, want %s", s.Commands, want)
	}
}

// TestS204_TwoRoutes asserts that a timeline reports an event that came by two routes, once, and only then.
func TestS204_TwoRoutes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(id, route string) EventLine {
		at = at.Add(time.Second)
		return EventLine{At: at, Kind: "received", Worker: "w", MessageID: id, Route: route}
	}
	for name, c := range map[string]struct {
		events []EventLine
		want   int
	}{
		"two rules":         {[]EventLine{line("1", "EventBridge"), line("1", "EventBridge"), line("2", "EventBridge"), line("3", "SNS arn")}, 1},
		"redelivered":       {[]EventLine{line("1", "EventBridge"), line("1", "EventBridge")}, 0},
		"sent by a person":  {[]EventLine{line("1", "EventBridge"), line(driver.RedriveID("l"), "EventBridge")}, 0},
		"no event":          {[]EventLine{line("1", ""), line("2", "")}, 0},
		"one of them is no": {[]EventLine{line("1", "EventBridge"), line("2", "")}, 0},
	} {
		s := Explain(Facts{Events: c.events})
		got := 0
		for _, x := range s.Sentences {
			if strings.Contains(x.Text, "came by two routes: as message 1 (EventBridge) and as message 2 (EventBridge)") {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s: reported %d times: %+v", name, got, s.Sentences)
		}
	}
}

func TestTimelineSteps(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := driver.Record{Key: driver.Key{Raw: "k"}, State: driver.InProgress, CreatedAt: t0, UpdatedAt: t0.Add(time.Hour)}
	s := Explain(Facts{Record: r, Now: t0, Steps: []driver.Step{
		{Name: "done", State: driver.StepDone, Token: 1, UpdatedAt: t0.Add(1 * time.Second)},
		{Name: "begun", State: driver.StepRegistered, Token: 1, UpdatedAt: t0.Add(2 * time.Second)},
		{Name: "started", State: driver.StepStarted, Token: 1, UpdatedAt: t0.Add(3 * time.Second)},
		{State: driver.RunCompensating, Token: 2, Reason: "no car", UpdatedAt: t0.Add(4 * time.Second)},
		{Name: "undone", State: driver.StepUndone, Token: 2, UpdatedAt: t0.Add(6 * time.Second)},
		{Name: "undoing", State: driver.StepUndoing, Token: 2, UpdatedAt: t0.Add(5 * time.Second)},
		{Name: "stuck", State: driver.StepUndoing, Token: 2, Failures: 2, Reason: "no response", UpdatedAt: t0.Add(7 * time.Second)},
	}})
	want := []struct {
		text  string
		doubt bool
	}{
		{"claimed for the first time", false}, {`Step "done" was done`, false}, {`Step "begun" began`, true},
		{`Step "started", which runs at most once`, true}, {"turned back (token 2), because no car", false},
		{`compensation of step "undoing" began`, true}, {`Step "undone" was compensated`, false},
		{`compensation of step "stuck" failed twice, because no response`, true}, {"claimed the key or last extended", false},
	}
	if len(s.Sentences) != len(want) {
		t.Fatalf("%d sentences, wanted %d: %+v", len(s.Sentences), len(want), s.Sentences)
	}
	for i, w := range want {
		if got := s.Sentences[i]; !strings.Contains(got.Text, w.text) || got.Doubt != w.doubt {
			t.Errorf("sentence %d is %+v, wanted %+v", i, got, w)
		}
	}
}

func TestVerdictOfFailedSteps(t *testing.T) {
	undone, done := driver.Step{Name: "flight", State: driver.StepUndone}, driver.Step{Name: "mail", State: driver.StepDone}
	turned := driver.Step{State: driver.RunCompensating}
	for _, x := range []struct {
		steps []driver.Step
		want  string
	}{
		{[]driver.Step{turned, undone}, "every step that was done was compensated"},
		{[]driver.Step{turned, undone, done}, "steps that were not compensated may have had their effect"},
		{nil, "no earlier run can have had an effect"},
	} {
		r := driver.Record{Key: driver.Key{Raw: "k"}, State: driver.FailedState, Generation: 1}
		if got := Explain(Facts{Record: r, Steps: x.steps}).Verdict; !strings.Contains(got, x.want) {
			t.Errorf("%d steps: %q, wanted %q in it", len(x.steps), got, x.want)
		}
	}
}

package ops

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// random is any input: mostly sensible sizes, sometimes absurd ones.
func random(r *rand.Rand) Workload {
	d := func(most time.Duration) time.Duration {
		switch r.IntN(6) {
		case 0:
			return 0
		case 1:
			return time.Duration(r.Int64N(int64(time.Second)))
		case 2:
			return most
		}
		return time.Duration(r.Int64N(int64(most)))
	}
	in := Workload{
		Kind: QueueKinds()[r.IntN(len(QueueKinds()))], P99: d(time.Hour), MaxRuntime: d(48 * time.Hour), Retention: d(maxKept),
		Redrive: d(60 * day), ProducerRetries: d(10 * day), Attempts: r.IntN(40), Batch: r.IntN(200), Concurrency: r.IntN(64),
		NoHeartbeat: r.IntN(8) == 0,
	}
	if in.Kind.SQS() && r.IntN(4) == 0 {
		in.LambdaTimeout, in.LambdaWindow = d(maxLambda), d(5*time.Minute)
		if in.LambdaTimeout == 0 {
			in.LambdaWindow = 0
		}
	}
	return in
}

// TestS0_26 checks the advised heartbeat for random inputs.
func TestS0_26_AHeartbeatIsAtMostAThirdOfTheLease(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 26))
	checked := 0
	for range 20000 {
		in := random(r)
		if in.Check() != nil {
			continue
		}
		checked++
		s, as := in.Settings(), in.Assumed()
		bad := ""
		switch {
		case s.Heartbeat > s.Lease/3:
			bad = "heartbeat beyond a third of the lease"
		case s.Heartbeat == 0 && !in.NoHeartbeat:
			bad = "no heartbeat"
		case s.Lease > s.Visibility/10*9:
			bad = "the lease outlives the visibility"
		case s.Visibility%time.Second != 0 || s.Visibility <= 0:
			bad = "SQS takes whole seconds"
		case as.Kind.SQS() && s.Visibility > maxVisible:
			bad = "longer than SQS hides a message"
		case as.Kind.SQS() && !s.Steps && s.Heartbeat > 0 && in.LambdaTimeout == 0 && s.MaxRuntime+s.Visibility > maxVisible:
			bad = "the heartbeat would run into the 12 h"
		case in.NoHeartbeat && in.LambdaTimeout == 0 && !s.Steps && s.Visibility < as.MaxRuntime:
			bad = "nothing covers the longest run"
		case s.Retention < s.Horizon || s.Horizon < as.Retention+as.Redrive+as.ProducerRetries:
			bad = "records end before the horizon"
		case s.MaxReceives > maxReceives || as.Kind.SQS() && s.MaxReceives < 1 || in.LambdaTimeout > 0 && s.MaxReceives < lambdaReceives:
			bad = "no limit that SQS takes"
		case as.Kind.SQS() && s.MaxReceives < maxReceives && float64(s.MaxReceives) < float64(as.Attempts)*(1+float64(s.MaxRuntime)/float64(s.Lease)):
			bad = "below law 6"
		case in.LambdaTimeout > 0 && (s.Visibility < 6*in.LambdaTimeout+in.LambdaWindow || s.Lease > in.LambdaTimeout):
			bad = "against Lambda's rules"
		case as.Kind.SQS() && s.Batch > maxBatch, s.Batch < 1, s.Batch > max(as.Concurrency, begun(as)):
			bad = "batch"
		}
		if bad != "" {
			t.Fatalf("seed %d: %s\n%+v\n%+v", seed, bad, in, s)
		}
		for _, it := range in.Advice() {
			if it.Name == "" || it.Why == "" || it.Source == "" || it.Value == "" || !strings.HasSuffix(it.Question, "?") {
				t.Fatalf("seed %d: advice without its reason: %+v", seed, it)
			}
		}
	}
	if checked < 5000 {
		t.Fatalf("seed %d: only %d inputs were allowed", seed, checked)
	}
}

func TestS0_25_TheVisibilityOfACommonJob(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Workload
		want Settings
	}{
		{
			"8 s of work", Workload{P99: 8 * time.Second, Redrive: 14 * day, ProducerRetries: day},
			Settings{
				Kind: KindSQS, Visibility: 30 * time.Second, Lease: 27 * time.Second, Heartbeat: 9 * time.Second, MaxRuntime: 15 * time.Minute,
				MaxReceives: 172, Horizon: 19 * day, Retention: 19 * day, DeadLetterRetention: 14 * day, Wait: 20 * time.Second, Batch: 10,
				Grace: 25 * time.Second,
			},
		},
		{
			"a run of 12 h", Workload{P99: time.Hour, MaxRuntime: 12 * time.Hour},
			Settings{
				Kind: KindSQS, Visibility: 8 * time.Minute, Lease: 432 * time.Second, Heartbeat: 144 * time.Second, MaxRuntime: 12 * time.Hour,
				Steps: true, MaxReceives: 505, Horizon: 18 * day, Retention: 18 * day, DeadLetterRetention: 14 * day, Wait: 20 * time.Second,
				Batch: 10, Grace: time.Hour,
			},
		},
		{
			"a function of 30 s", Workload{P99: 5 * time.Second, LambdaTimeout: 30 * time.Second, LambdaWindow: 2 * time.Second, Attempts: 2},
			Settings{
				Kind: KindSQS, Visibility: 182 * time.Second, Lease: 30 * time.Second, Heartbeat: 10 * time.Second, MaxRuntime: 30 * time.Second,
				MaxReceives: 5, Horizon: 18 * day, Retention: 18 * day, DeadLetterRetention: 14 * day, Wait: 20 * time.Second, Batch: 10,
				Grace: 25 * time.Second,
			},
		},
		{
			"SQLite", Workload{Kind: KindSQLite, P99: 15 * time.Second, Redrive: 30 * day, Batch: 100},
			Settings{
				Kind: KindSQLite, Visibility: 45 * time.Second, Lease: 40500 * time.Millisecond, Heartbeat: 13500 * time.Millisecond,
				MaxRuntime: 15 * time.Minute, Horizon: 30 * day, Retention: 30 * day, Batch: 16, Grace: 25 * time.Second,
			},
		},
		{
			"no heartbeat", Workload{MaxRuntime: 9 * time.Minute, NoHeartbeat: true, Batch: 10, Concurrency: 5},
			Settings{
				Kind: KindSQS, Visibility: 20 * time.Minute, Lease: 18 * time.Minute, MaxRuntime: 9 * time.Minute, MaxReceives: 8,
				Horizon: 18 * day, Retention: 18 * day, DeadLetterRetention: 14 * day, Wait: 20 * time.Second, Batch: 5, Grace: 25 * time.Second,
			},
		},
	} {
		if err := c.in.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := c.in.Settings(); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestALiveQueueIsCompared(t *testing.T) {
	levels := func(in Workload) map[string]string {
		out := map[string]string{}
		for _, it := range in.Advice() {
			out[it.Name] = it.Level
		}
		return out
	}
	good := LiveQueue{Visibility: 30 * time.Second, Retention: 4 * day, Wait: 20 * time.Second, MaxReceives: 200, DeadLetterRetention: 14 * day}
	for _, c := range []struct {
		name, item, want string
		change           func(*Workload)
	}{
		{"as it should be", "visibility", LevelOK, func(*Workload) {}},
		{"as it should be", "redrive limit", LevelOK, func(*Workload) {}},
		{"as it should be", "dead-letter retention", LevelOK, func(*Workload) {}},
		{"as it should be", "long polling", LevelOK, func(*Workload) {}},
		{"5 s, as in the experiment", "visibility", LevelChange, func(in *Workload) { in.Live.Visibility = 5 * time.Second }},
		{"below the function's time limit", "visibility", LevelDanger, func(in *Workload) { in.LambdaTimeout, in.P99 = time.Minute, 0 }},
		{"two receives", "redrive limit", LevelDanger, func(in *Workload) { in.Live.MaxReceives = 2 }},
		{"no policy", "redrive limit", LevelOK, func(in *Workload) { in.Live.MaxReceives = 0 }},
		{"dead letters of 4 days", "dead-letter retention", LevelChange, func(in *Workload) { in.Live.DeadLetterRetention = 4 * day }},
		{"14 days", "dead-letter retention", LevelWarning, func(in *Workload) { in.Live.Retention = 14 * day }},
		{"short polls", "long polling", LevelChange, func(in *Workload) { in.Live.Wait = 0 }},
		{"a run of 12 h", "max-runtime", LevelDanger, func(in *Workload) { in.MaxRuntime = 12 * time.Hour }},
		{"producers that repeat for a day", "deduplication window", LevelWarning, func(in *Workload) { in.Live.FIFO, in.ProducerRetries = true, day }},
		{"FIFO", "deduplication window", LevelOK, func(in *Workload) { in.Live.FIFO = true }},
		{"no heartbeat", "heartbeat", LevelWarning, func(in *Workload) { in.NoHeartbeat = true }},
		{"more than can be set", "redrive limit", LevelWarning, func(in *Workload) { in.Attempts, in.Live = 1200, nil }},
	} {
		live := good
		in := Workload{P99: time.Second, Live: &live}
		c.change(&in)
		if got := levels(in)[c.item]; got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.name, c.item, got, c.want)
		}
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for field, in := range map[string]Workload{
		"queue":          {Kind: "pulsar"},
		"p99":            {P99: time.Hour, MaxRuntime: time.Minute},
		"retention":      {Retention: 15 * day},
		"lambda-timeout": {LambdaTimeout: 16 * time.Minute, Kind: KindFIFO},
		"lambda-window":  {LambdaWindow: time.Second},
		"max-attempts":   {Attempts: -1},
	} {
		e := (*WorkloadError)(nil)
		if err := in.Check(); !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %+v", field, err)
		}
	}
	if err := (Workload{Kind: KindPostgres, LambdaTimeout: time.Second}).Check(); err == nil {
		t.Error("Lambda on PostgreSQL was allowed")
	}
}

// TestS0_27 holds the table that is printed against the decision table that decides.
func TestS0_27_TheCasesOfAFailedConditionAreTheDecisionTables(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mine, theirs := driver.Nonce{1}, driver.Nonce{2}
	claim := driver.Claim{Key: driver.Key{Raw: "k"}, Nonce: mine, Lease: time.Minute, Fingerprint: "one:a"}
	held := driver.Record{
		Key: claim.Key, State: driver.InProgress, Nonce: theirs, Lease: time.Minute, LeaseUntil: now.Add(time.Second), Fingerprint: "one:a", Token: 7,
	}
	with := func(change func(*driver.Record)) driver.Record {
		r := held
		change(&r)
		return r
	}
	cases := map[string]driver.Record{
		"it is completed, and the payload agrees":          with(func(r *driver.Record) { r.State = driver.Completed }),
		"it is in progress, and its lease goes on":         held,
		"it is in progress, and its lease has ended":       with(func(r *driver.Record) { r.LeaseUntil = now.Add(-time.Second) }),
		"it waits for its next attempt":                    with(func(r *driver.Record) { r.State = driver.Released }),
		"the write was our own, and its response was lost": with(func(r *driver.Record) { r.Nonce = mine }),
		"the payload is another one":                       with(func(r *driver.Record) { r.Fingerprint = "one:b" }),
		"it has failed for good, or is parked for a person": with(func(r *driver.Record) {
			r.State = driver.FailedState
		}),
	}
	seen := 0
	for _, c := range conditions() {
		r, ok := cases[c.When]
		if !ok {
			if c.Verdict != "" {
				t.Errorf("%s is held against nothing", c.When)
			}
			continue
		}
		seen++
		after, g, _ := driver.DecideClaim(r, claim, now, 1)
		if g.Verdict.String() != c.Verdict {
			t.Errorf("%s: the table returns %v, the advice says %s", c.When, g.Verdict, c.Verdict)
		}
		if taken := c.When == "it is in progress, and its lease has ended"; taken && (after.Token <= r.Token || !after.Unknown) {
			t.Errorf("a takeover without the next token or without doubt: %+v", after)
		}
	}
	if seen != len(cases) {
		t.Errorf("%d of %d cases are in the advice", seen, len(cases))
	}
	for kind, want := range map[QueueKind]int{KindSQS: 5, KindFIFO: 5, KindOther: 5, KindSQLite: 3, KindPostgres: 3, KindMemory: 3} {
		got := (Workload{Kind: kind}).Questions()
		for _, a := range got {
			if want == 3 && strings.Contains(fmt.Sprint(a), "DynamoDB") {
				t.Errorf("%s: asks about DynamoDB: %q", kind, a.Question)
			}
		}
		if len(got) != want {
			t.Errorf("%s: %d questions, want %d", kind, len(got), want)
		}
	}
}

package dynamodb

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// tracker is the table of csv-processing-tracker: one partition key, and items that an older guard wrote.
func tracker() Options {
	return Options{Layout: Layout{
		PartitionKey: "file_key", Text: RawKeys("orders"), Status: "status", Names: map[string]string{"attempt": "attempts"},
		Statuses: map[driver.State]string{driver.InProgress: "processing", driver.Completed: "success"},
		Adopt: map[string]driver.State{
			"processing": driver.InProgress, "success": driver.Completed, "failed": driver.Released, "deleted": driver.Absent,
		},
	}}
}

// old writes an item as the older guard did.
func (r *fixture) old(t testing.TB, id, status string) {
	t.Helper()
	_, err := r.client.PutItem(t.Context(), &awsdynamodb.PutItemInput{
		TableName: aws.String("records"),
		Item: attrs{
			r.shape.pk: text(id), "status": text(status), "execution_id": text("b8e7"), "timestamp": number(1767355200),
		},
		ConditionExpression: aws.String("attribute_not_exists(" + r.shape.pk + ")"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestS2_11_TrackerTable runs on the table of the old guard. An item that it left as processing when it crashed is taken
// over after one lease, its own attributes stay, and an item that the layout does not define is an error and runs nothing.
func TestS2_11_TrackerTable(t *testing.T) {
	r := newFixture(t, tracker())
	for id, status := range map[string]string{
		"crashed.csv": "processing", "done.csv": "success", "failed.csv": "failed", "gone.csv": "deleted", "odd.csv": "weird",
	} {
		r.old(t, id, status)
	}
	claimOne(t, r.Store, claimOf("done.csv"), driver.Replay)
	if g := claimOne(t, r.Store, claimOf("failed.csv"), driver.Acquired); !g.Unknown {
		t.Error("a run after one with an unknown outcome is not marked as unknown")
	}
	if g := claimOne(t, r.Store, claimOf("gone.csv"), driver.Acquired); g.Unknown || g.Attempt != 1 {
		t.Errorf("an item that means nothing made %+v, wanted a new key", g)
	}
	// It is an error of this claim and not of the store: others go on.
	g, err := r.Claim(t.Context(), claimOf("odd.csv"))
	if err != nil || g[0].Err == nil || !strings.Contains(g[0].Err.Error(), "Layout.Adopt") {
		t.Errorf("the claim of an item that the layout does not know returned %+v, %v", g, err)
	}
	// The old guard would have kept crashed.csv from ever running again.
	if g := claimOne(t, r.Store, claimOf("crashed.csv"), driver.Busy); g.Wait != time.Minute+r.o.skew() {
		t.Errorf("the wait is %v, wanted one lease and the skew", g.Wait)
	}
	r.clock.Advance(50 * time.Second)
	claimOne(t, r.Store, claimOf("crashed.csv"), driver.Busy)
	r.clock.Advance(25 * time.Second)
	late := claimOne(t, r.Store, claimOf("crashed.csv"), driver.Acquired)
	if !late.Unknown || late.Attempt != 2 || late.Takeovers != 1 {
		t.Errorf("the takeover is %+v, wanted the second attempt, with an unknown outcome before", late)
	}
	finishOne(t, r.Store, completion(late), driver.Applied)
	item := r.item(t, "crashed.csv")
	for name, want := range map[string]types.AttributeValue{
		"file_key": text("crashed.csv"), "status": text("success"), "attempts": number(2), "execution_id": text("b8e7"),
		"timestamp": number(1767355200),
	} {
		if !same(item[name], want) {
			t.Errorf("attribute %s is %v, wanted %v", name, item[name], want)
		}
	}
	for name := range item {
		switch name {
		case "file_key", "status", "attempts", "execution_id", "timestamp":
		default:
			if !strings.HasPrefix(name, "semel_") {
				t.Errorf("attribute %q has no prefix", name)
			}
		}
	}
}

// TestS2_11_NewFile claims a new file: the item has the columns of the old guard.
func TestS2_11_NewFile(t *testing.T) {
	r := newFixture(t, tracker())
	claimOne(t, r.Store, claimOf("new.csv"), driver.Acquired)
	claimOne(t, r.Store, claimOf("new.csv"), driver.Busy)
	if item := r.item(t, "new.csv"); !same(item["status"], text("processing")) || !same(item["attempts"], number(1)) {
		t.Errorf("the item is %v", item)
	}
}

// TestS2_10_HistoryTable uses a similar table whose key was a hash made by the caller. Here the key itself is compared, so a
// collision is an error and not one file.
func TestS2_10_HistoryTable(t *testing.T) {
	r := newFixture(t, Options{Layout: Layout{
		PartitionKey: "unique_key", Status: "status", Statuses: map[driver.State]string{driver.InProgress: "processing"},
	}})
	g := claimOne(t, r.Store, claimOf("bucket|a.csv|2026-01-02"), driver.Acquired)
	claimOne(t, r.Store, claimOf("bucket|b.csv|2026-01-02"), driver.Acquired)
	finishOne(t, r.Store, completion(g), driver.Applied)
	claimOne(t, r.Store, claimOf("bucket|a.csv|2026-01-02"), driver.Replay)
	if item := r.item(t, "bucket|a.csv|2026-01-02"); !same(item["semel_key"], text("bucket|a.csv|2026-01-02")) {
		t.Errorf("the item has no raw key: %v", item)
	}
}

// TestS4_02_OneContainerCreates lets twenty workers claim one id at once: one creates the record, by its first write.
func TestS4_02_OneContainerCreates(t *testing.T) {
	r := newFixture(t, Options{Layout: Layout{PartitionKey: "id", Text: RawKeys("orders"), Status: "status"}})
	var mu sync.Mutex
	verdicts := map[driver.Verdict]int{}
	var wg sync.WaitGroup
	for range 20 {
		s := r.again(t, nil)
		wg.Go(func() {
			g, err := s.Claim(t.Context(), claimOf("screenshot-1"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			verdicts[g[0].Verdict]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if verdicts[driver.Acquired] != 1 || verdicts[driver.Busy] != 19 {
		t.Errorf("verdicts %v, wanted one acquired and 19 busy", verdicts)
	}
}

// TestS4_03_InProgressIsKept: a duplicate of a key in progress is busy and tried again, and not "success, skipped". It runs
// when the holder dies.
func TestS4_03_InProgressIsKept(t *testing.T) {
	r := newFixture(t, Options{})
	claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	if g := claimOne(t, r.Store, claimOf("a"), driver.Busy); g.Wait <= 0 {
		t.Error("a busy key has no wait")
	}
	r.clock.Advance(time.Minute + r.o.skew() + time.Second)
	claimOne(t, r.Store, claimOf("a"), driver.Acquired)
}

// TestS4_04_OutageIsNoDuplicate: only a failed condition is a verdict. Everything else is an error, even if it sounds
// similar.
func TestS4_04_OutageIsNoDuplicate(t *testing.T) {
	r := newFixture(t, Options{})
	f := awstest.NewFaults(awstest.Plan{})
	s := r.again(t, func(o *Options) { o.RetryFor = 50 * time.Millisecond }, f.Wrap)
	f.Outage(true)
	if g, err := s.Claim(t.Context(), claimOf("a")); err == nil {
		t.Errorf("a claim during an outage returned %+v", g)
	}
	f.Outage(false)
	claimOne(t, s, claimOf("a"), driver.Acquired)
	if _, err := r.client.DeleteTable(t.Context(), &awsdynamodb.DeleteTableInput{TableName: aws.String("records")}); err != nil {
		t.Fatal(err)
	}
	if g, err := s.Claim(t.Context(), claimOf("b")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a claim without a table returned %+v, %v", g, err)
	}
}

// TestS0_11_ConcurrentCompleters: of all concurrent completions one is applied. The others return Lost and do not crash.
func TestS0_11_ConcurrentCompleters(t *testing.T) {
	r := newFixture(t, Options{})
	first := claimOne(t, r.Store, claimOf("msg-1"), driver.Acquired)
	r.clock.Advance(2 * time.Minute)
	other := r.again(t, nil)
	second := claimOne(t, other, claimOf("msg-1"), driver.Acquired)
	var wg sync.WaitGroup
	var outcomes [8]driver.Outcome
	for i := range outcomes {
		s, g := r.Store, first
		if i%2 == 1 {
			s, g = other, second
		}
		wg.Go(func() {
			o, err := s.Commit(t.Context(), r.withEffect(g))
			if err != nil {
				t.Error(err)
				return
			}
			outcomes[i] = o[0]
		})
	}
	wg.Wait()
	for i, o := range outcomes {
		if want := []driver.Outcome{driver.Lost, driver.Applied}[i%2]; o != want {
			t.Errorf("completer %d got %v, wanted %v", i, o, want)
		}
	}
	if n := r.effects(t, "msg-1"); n != 1 {
		t.Errorf("%d effects, wanted one", n)
	}
}

// demo are the two tables of the demo: message-status and message-completed.
func demo(consumer string) Options {
	return Options{
		Layout: Layout{
			PartitionKey: "message_id", Text: RawKeys(consumer), Status: "status", Names: map[string]string{"attempt": "attempts"},
			Statuses: map[driver.State]string{driver.InProgress: "STARTED"},
		},
		Gate: "message-completed",
	}
}

func (r *fixture) gateRows() int { return len(r.fake.Items("message-completed")) }

// TestS3_09_StatusAndAttempts: the status table shows STARTED, then COMPLETED, and counts the attempts.
func TestS3_09_StatusAndAttempts(t *testing.T) {
	r := newFixture(t, demo("orders"))
	g := claimOne(t, r.Store, claimOf("m1"), driver.Acquired)
	if item := r.item(t, "m1"); !same(item["status"], text("STARTED")) || !same(item["attempts"], number(1)) {
		t.Errorf("the status row is %v", item)
	}
	finishOne(t, r.Store, driver.Finish{Hold: g.Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: time.Hour}, driver.Applied)
	g = claimOne(t, r.Store, claimOf("m1"), driver.Acquired)
	if r.gateRows() != 0 {
		t.Error("the gate has a row of a message that is not completed")
	}
	finishOne(t, r.Store, completion(g), driver.Applied)
	if item := r.item(t, "m1"); !same(item["status"], text("COMPLETED")) || !same(item["attempts"], number(2)) || r.gateRows() != 1 {
		t.Errorf("the status row is %v, the gate has %d rows", item, r.gateRows())
	}
}

// TestS3_10_GateAcrossConsumers: two consumers with separate status tables share the gate. The effects of the second are not
// written, but its record is completed, and duplicates replay.
func TestS3_10_GateAcrossConsumers(t *testing.T) {
	r := newFixture(t, demo("orders"))
	o := demo("billing")
	o.Clock = r.clock.Now
	if err := Create(t.Context(), r.client, "billing-status", CreateOptions{Options: o}); err != nil {
		t.Fatal(err)
	}
	billing := r.open(t, r.client, "billing-status", o)
	g := claimOne(t, r.Store, claimOf("m1"), driver.Acquired)
	c := claimOf("m1")
	c.Key.Consumer = "billing"
	g2 := claimOne(t, billing, c, driver.Acquired)
	for range 2 {
		if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
			t.Fatalf("commit returned %v, %v", o, err)
		}
		if o, err := billing.Commit(t.Context(), r.withEffect(g2)); err != nil || o[0] != driver.Applied {
			t.Fatalf("the second consumer's commit returned %v, %v", o, err)
		}
	}
	if n := r.effects(t, "m1"); n != 1 || r.gateRows() != 1 {
		t.Errorf("%d effects and %d rows in the gate, wanted one of each", n, r.gateRows())
	}
	claimOne(t, billing, c, driver.Replay)
}

// TestS3_55_FaultBetweenTransactionAndAck loses the response to the transaction and then the worker: the next delivery finds
// the record completed. If the record was removed in between, the gate still stops the whole second transaction.
func TestS3_55_FaultBetweenTransactionAndAck(t *testing.T) {
	r := newFixture(t, demo("orders"))
	s, _ := r.faulty(t, awstest.Plan{Schedule: []awstest.Fault{{Operation: "TransactWriteItems", Call: 1, Kind: awstest.After}}})
	g := claimOne(t, s, claimOf("m1"), driver.Acquired)
	if o, err := s.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
		t.Fatalf("commit returned %v, %v", o, err)
	}
	before := r.item(t, "m1")
	claimOne(t, r.again(t, nil), claimOf("m1"), driver.Replay)
	if after := r.item(t, "m1"); !same(before["semel_rev"], after["semel_rev"]) {
		t.Errorf("a redelivery changed the status row from revision %v to %v", before["semel_rev"], after["semel_rev"])
	}
	if _, err := r.client.DeleteItem(t.Context(), &awsdynamodb.DeleteItemInput{
		TableName: aws.String("records"), Key: attrs{"message_id": text("m1")},
	}); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Second)
	g = claimOne(t, r.Store, claimOf("m1"), driver.Acquired)
	if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
		t.Fatalf("the second run's commit returned %v, %v", o, err)
	}
	if n := r.effects(t, "m1"); n != 1 {
		t.Errorf("%d effects, wanted one: the gate stops the second", n)
	}
	claimOne(t, r.Store, claimOf("m1"), driver.Replay)
	// A gate row of another key is an error: no message may be dropped because of it.
	_, err := r.client.PutItem(t.Context(), &awsdynamodb.PutItemInput{
		TableName: aws.String("message-completed"), Item: attrs{"message_id": text("m2"), "key": text("another")},
	})
	if err != nil {
		t.Fatal(err)
	}
	g = claimOne(t, r.Store, claimOf("m2"), driver.Acquired)
	if _, err := r.Commit(t.Context(), r.withEffect(g)); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("a row of another key returned %v", err)
	}
}

// TestLayoutIsChecked refuses layouts that cannot work.
func TestLayoutIsChecked(t *testing.T) {
	for want, l := range map[string]Layout{
		"Layout.SortValue":  {PartitionKey: "id", SortValue: "x"},
		"Layout.Names has":  {Names: map[string]string{"atempt": "attempts"}},
		"rename one":        {Names: map[string]string{"attempt": "token"}},
		"the partition key": {PartitionKey: "id", Status: "id"},
		"Layout.Statuses":   {Statuses: map[driver.State]string{driver.Completed: "done", driver.FailedState: "done"}},
	} {
		if _, err := Open(t.Context(), awsdynamodb.NewFromConfig(awstest.Config(nil)), "records", Options{Layout: l}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("layout %+v returned %v, wanted %q", l, err, want)
		}
	}
}

// TestS3_10_GateKeepsTenantsApart completes one key for two tenants: the gate drops the effects of neither.
func TestS3_10_GateKeepsTenantsApart(t *testing.T) {
	r := newFixture(t, demo("orders"))
	for i, tenant := range []string{"", "a", "b"} {
		c := claimOf("m1")
		c.Key.Tenant = tenant
		g := claimOne(t, r.Store, c, driver.Acquired)
		for range 2 {
			if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Applied {
				t.Fatalf("tenant %q: commit returned %v, %v", tenant, o, err)
			}
		}
		if n := r.effects(t, "m1"); n != i+1 || r.gateRows() != i+1 {
			t.Errorf("after tenant %q: %d effects and %d rows in the gate, wanted %d of each", tenant, n, r.gateRows(), i+1)
		}
	}
}

// TestS2_11_StatusOfOtherKinds adopts items whose status is a number, and items without a status.
func TestS2_11_StatusOfOtherKinds(t *testing.T) {
	o := tracker()
	o.Layout.Adopt = map[string]driver.State{"3": driver.Completed, "4": driver.Released, "": driver.Absent}
	r := newFixture(t, o)
	for id, status := range map[string]types.AttributeValue{"done": number(3), "failed": number(4), "none": nil, "empty": text("")} {
		item := attrs{"file_key": text(id), "status": status}
		if status == nil {
			delete(item, "status")
		}
		if _, err := r.client.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("records"), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	claimOne(t, r.Store, claimOf("done"), driver.Replay)
	for _, id := range []string{"failed", "none", "empty"} {
		finishOne(t, r.Store, completion(claimOne(t, r.Store, claimOf(id), driver.Acquired)), driver.Applied)
		claimOne(t, r.Store, claimOf(id), driver.Replay)
	}
}

// TestWorkersNeedASortKey: a table of an older program without a sort key keeps no reports of workers.
func TestWorkersNeedASortKey(t *testing.T) {
	r := newFixture(t, tracker())
	_, err := r.Workers(t.Context())
	for _, err := range []error{err, r.ReportWorker(t.Context(), driver.WorkerReport{ID: "w"}), r.ForgetWorker(t.Context(), "w")} {
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), `table "records" has no sort key`) {
			t.Errorf("got %v", err)
		}
	}
}

// TestWorkersBesideRecords: reports are no records, a scan does not list them, and those that the time to live has not
// removed yet are not listed.
func TestWorkersBesideRecords(t *testing.T) {
	r := newFixture(t, Options{})
	at := r.clock.Now().UTC()
	claimOne(t, r.Store, claimOf("k"), driver.Acquired)
	for id, seen := range map[string]time.Time{"now": at, "old": at.Add(-driver.WorkerKept - time.Second), strings.Repeat("ü", 100): at} {
		if err := r.ReportWorker(t.Context(), driver.WorkerReport{ID: id, Seen: seen}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := r.Workers(t.Context()); err != nil || len(all) != 2 || all[0].ID != "now" {
		t.Errorf("workers %+v, %v", all, err)
	}
	if all, err := r.Records(t.Context(), driver.RecordFilter{}); err != nil || len(all) != 1 {
		t.Errorf("records %+v, %v", all, err)
	}
}

package dynamodb

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/driver"
)

// TestFM41_SweepOfTheGate: without a time to live a pass removes the rows of the gate that have expired, if they have not
// changed since they were read, and nothing that semel did not write. A sweep that leaves rows reports its lag.
func TestFM41_SweepOfTheGate(t *testing.T) {
	const gate = "done"
	scanned := func() {}
	r := newFixture(t, Options{Gate: gate}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(q)
			if q.Header.Get("X-Amz-Target") == "DynamoDB_20120810.Scan" {
				scanned()
			}
			return res, err
		})
	})
	keeps := map[string]time.Duration{"a": time.Hour, "b": time.Hour, "c": time.Hour, "renewed": time.Hour, "kept": 100 * time.Hour}
	for id, keep := range keeps {
		g := claimOne(t, r.Store, claimOf(id), driver.Acquired)
		if o, err := r.Commit(t.Context(), driver.Work{Finish: driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep}}); err != nil || o[0] != driver.Applied {
			t.Fatalf("commit returned %v, %v", o, err)
		}
	}
	put := func(item attrs) {
		t.Helper()
		item[r.Store.shape.ttl] = number(r.clock.Now().Add(-time.Minute).Unix())
		if _, err := r.client.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String(gate), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() map[string]attrs {
		t.Helper()
		out, err := r.client.Scan(t.Context(), &awsdynamodb.ScanInput{TableName: aws.String(gate)})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]attrs{}
		for _, item := range out.Items {
			id, err := asText(item["key"])
			if err != nil || id == "" {
				id = "foreign"
			}
			all[id] = item
		}
		return all
	}
	put(attrs{r.Store.shape.gateKey: text("of-somebody-else")})
	if n := len(rows()); n != len(keeps)+1 {
		t.Fatalf("%d rows in the gate", n)
	}
	r.clock.Advance(3 * time.Hour)
	pages := 0
	scanned = func() {
		if pages++; pages != 2 { // the second is the gate's
			return
		}
		item := rows()["renewed"] // the key was completed again
		item["token"] = number(int64(1) << 60)
		put(item)
	}
	purged, lagged := 0, time.Duration(0)
	for more := true; more; {
		swept, again, err := r.Sweep(t.Context(), 0, 2)
		if err != nil || swept.Count() > 2 {
			t.Fatalf("sweep returned %+v, %v", swept, err)
		}
		purged, lagged, more = purged+swept.Purged, max(lagged, swept.Lag), again
	}
	if purged != 4+3 { // records, and rows of the gate
		t.Errorf("%d purged, want 4 records and 3 rows of the gate", purged)
	}
	if lagged != 2*time.Hour {
		t.Errorf("the lag was %v, want 2h", lagged)
	}
	left := rows()
	for _, id := range []string{"foreign", "kept", "renewed"} {
		if left[id] == nil {
			t.Errorf("the row of %s is gone", id)
		}
	}
	if len(left) != 3 {
		t.Errorf("%d rows are left in the gate, want 3", len(left))
	}
}

package dynamodb

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// TestFM53_RawKeyIsCompared makes two keys share an item: the second gets an error, and is never a duplicate.
func TestFM53_RawKeyIsCompared(t *testing.T) {
	r := newFixture(t, Options{Layout: Layout{PartitionKey: "id", Text: func(driver.Key) string { return "the same" }}})
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	finishOne(t, r.Store, completion(g), driver.Applied)
	if g, err := r.Claim(t.Context(), claimOf("b")); err != nil || g[0].Err == nil || !strings.Contains(g[0].Err.Error(), "Layout.Text") {
		t.Errorf("the claim of another key with the same item returned %+v, %v", g, err)
	}
	claimOne(t, r.Store, claimOf("a"), driver.Replay)
}

// TestFM58_LargeResults: a result that no item can hold is refused. The attempt fails with a reason, so that it does not run
// forever.
func TestFM58_LargeResults(t *testing.T) {
	r := newFixture(t, Options{})
	for i, n := range []int{r.Features().MaxResult, itemLimit + 1} {
		for _, commit := range []bool{false, true} {
			g := claimOne(t, r.Store, claimOf(fmt.Sprint(i, commit)), driver.Acquired)
			w := r.withEffect(g)
			w.Finish.Result = bytes.Repeat([]byte{7}, n)
			if !commit {
				w.Effects = nil
			}
			o, err := r.Commit(t.Context(), w)
			var item *driver.ItemError
			if i == 0 && (err != nil || o[0] != driver.Applied) || i == 1 && !errors.As(err, &item) {
				t.Errorf("a result of %d bytes returned %v, %v", n, o, err)
			}
			if i == 1 {
				_, err = r.Finish(t.Context(), w.Finish)
				if !errors.As(err, &item) || r.effects(t, g.Hold.Key.Raw) != 0 {
					t.Errorf("its finish returned %v, with %d effects", err, r.effects(t, g.Hold.Key.Raw))
				}
				finishOne(t, r.Store, driver.Finish{Hold: g.Hold, Final: driver.Fail, Keep: time.Hour, Reason: "too large"}, driver.Applied)
			}
		}
	}
}

// TestFM85_LostSuffix loses writes of the table, as after a restore: a token is drawn again, and the nonce distinguishes its
// holders.
func TestFM85_LostSuffix(t *testing.T) {
	r := newFixture(t, Options{})
	zombie := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	if _, err := r.client.DeleteItem(t.Context(), &awsdynamodb.DeleteItemInput{
		TableName: aws.String("records"), Key: r.shape.keyOf(zombie.Hold.Key),
	}); err != nil {
		t.Fatal(err)
	}
	other := r.again(t, nil)
	g := claimOne(t, other, claimOf("a"), driver.Acquired)
	if g.Hold.Token != zombie.Hold.Token {
		t.Fatalf("tokens %d and %d: the test needs the same one", g.Hold.Token, zombie.Hold.Token)
	}
	// The zombie's row in memory has the same revision and token.
	finishOne(t, r.Store, completion(zombie), driver.Lost)
	if o, err := r.Commit(t.Context(), r.withEffect(zombie)); err != nil || o[0] != driver.Lost || r.effects(t, "a") != 0 {
		t.Errorf("the zombie's commit returned %v, %v with %d effects", o, err, r.effects(t, "a"))
	}
	finishOne(t, other, completion(g), driver.Applied)
}

// TestFM12_FloorOutlivesRecords raises the floor, deletes the record and starts a process whose clock is behind.
func TestFM12_FloorOutlivesRecords(t *testing.T) {
	r := newFixture(t, Options{})
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	if err := r.raiseFloor(t.Context(), g.Hold.Token); err != nil {
		t.Fatal(err)
	}
	if err := r.raiseFloor(t.Context(), 5); err != nil { // lower: nothing happens
		t.Fatal(err)
	}
	if _, err := r.client.DeleteItem(t.Context(), &awsdynamodb.DeleteItemInput{
		TableName: aws.String("records"), Key: r.shape.keyOf(g.Hold.Key),
	}); err != nil {
		t.Fatal(err)
	}
	behind := r.again(t, func(o *Options) { o.Clock = awstest.Frozen(midday.Add(-time.Hour)).Now })
	if got := claimOne(t, behind, claimOf("a"), driver.Acquired); got.Hold.Token <= g.Hold.Token {
		t.Errorf("token %d after token %d", got.Hold.Token, g.Hold.Token)
	}
	// A clock that steps back within one process.
	last := uint64(0)
	r.clock.Advance(time.Hour)
	for i := range 4 {
		got := claimOne(t, r.Store, claimOf(fmt.Sprint(i)), driver.Acquired)
		if got.Hold.Token < last {
			t.Errorf("token %d after token %d", got.Hold.Token, last)
		}
		last = got.Hold.Token
		r.clock.Advance(-time.Minute)
	}
	if last > math.MaxInt64 {
		t.Error("tokens of that size do not fit into a bigint")
	}
}

// TestFM58_LongReasons ends attempts whose errors quote whole documents: the end is written, with the beginning of the
// reason.
func TestFM58_LongReasons(t *testing.T) {
	r := newFixture(t, Options{})
	for i, final := range []driver.Final{driver.Fail, driver.Park, driver.Release} {
		for _, n := range []int{maxReason, maxReason + 1, itemLimit + 1} {
			for _, commit := range []bool{false, true} {
				g := claimOne(t, r.Store, claimOf(fmt.Sprint(final, n, commit)), driver.Acquired)
				f := driver.Finish{Hold: g.Hold, Final: final, Keep: time.Hour, Reason: "no: " + strings.Repeat("é", n/2)}
				if commit {
					o, err := r.Commit(t.Context(), driver.Work{Finish: f})
					if err != nil || o[0] != driver.Applied {
						t.Fatalf("commit of %v with a reason of %d bytes returned %v, %v", final, n, o, err)
					}
				} else {
					finishOne(t, r.Store, f, driver.Applied)
				}
				rec, _, err := r.Record(t.Context(), g.Hold.Key)
				if err != nil || !strings.HasPrefix(f.Reason, strings.TrimSuffix(rec.Reason, "…")) || len(rec.Reason) < maxReason-4 ||
					len(rec.Reason) > maxReason+4 || strings.ContainsRune(rec.Reason, '\uFFFD') {
					t.Errorf("%d: the record of a reason of %d bytes has one of %d, %v", i, n, len(rec.Reason), err)
				}
			}
		}
	}
}

package dynamodb

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/driver"
)

// cost is the price of one message.
type cost struct {
	Calls         int
	Reads, Writes float64
}

// measure runs f and returns what the fake charged for it.
func (r *fixture) measure(t *testing.T, f func()) cost {
	t.Helper()
	r.fake.ResetUsed()
	before := r.Consumed()
	f()
	var c cost
	for _, u := range r.fake.Used() {
		c.Calls += u.Calls
		c.Reads += u.Read
		c.Writes += u.Write
	}
	if got := r.Consumed().Since(before); got.Calls > 0 && got != (driver.Units{Calls: int64(c.Calls), Reads: c.Reads, Writes: c.Writes}) {
		t.Errorf("the store's meter says %+v, the service charged %+v", got, c)
	}
	return c
}

// naive is the common guard: read the item, put it, run, update it. Its steps are not atomic: two workers that read at the
// same time both run, and a message whose worker dies after the put never runs again.
type naive struct{ r *fixture }

func (n naive) handle(t *testing.T, id string, run func()) {
	t.Helper()
	c := n.r.client
	key := attrs{"id": text(id)}
	table := aws.String("naive")
	got, err := c.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if got.Item != nil {
		return
	}
	_, err = c.PutItem(t.Context(), &awsdynamodb.PutItemInput{
		TableName: table, Item: attrs{"id": text(id), "status": text("processing")},
		ConditionExpression: aws.String("attribute_not_exists(id)"),
	})
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	run()
	_, err = c.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
		TableName: table, Key: key, UpdateExpression: aws.String("SET #s = :s"),
		ExpressionAttributeNames: map[string]string{"#s": "status"}, ExpressionAttributeValues: attrs{":s": text("success")},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnitsPerMessage asserts what a message costs, new and as a duplicate, and prints the table of the documentation.
func TestUnitsPerMessage(t *testing.T) {
	r := newFixture(t, Options{})
	createTableOf(t, r.client, "naive", "id")
	gated := newFixture(t, Options{Gate: "completed"})
	runA := func(r *fixture, id string) {
		g, err := r.Claim(t.Context(), claimOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if g[0].Verdict == driver.Acquired {
			finishOne(t, r.Store, completion(g[0]), driver.Applied)
		}
	}
	runA2 := func(r *fixture, id string) {
		g, err := r.Claim(t.Context(), claimOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if g[0].Verdict == driver.Acquired {
			if o, err := r.Commit(t.Context(), r.withEffect(g[0])); err != nil || o[0] != driver.Applied {
				t.Fatalf("commit returned %v, %v", o, err)
			}
		}
	}
	effect := func(r *fixture, id string) func() {
		return func() {
			_, err := r.client.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
				TableName: &r.ledger, Key: ledgerKey(id), UpdateExpression: aws.String("ADD n :n"),
				ExpressionAttributeValues: attrs{":n": number(1)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var table strings.Builder
	table.WriteString("\n| | new: calls | read units | write units | duplicate: calls | read units | write units |\n|---|---|---|---|---|---|---|\n")
	for _, x := range []struct {
		name      string
		r         *fixture
		run       func(id string)
		new, dupe cost
	}{
		{
			"get, put, update (naive)", r, func(id string) { naive{r}.handle(t, id, func() {}) },
			cost{3, 1, 2}, cost{1, 1, 0},
		},
		{"semel, mode A", r, func(id string) { runA(r, id) }, cost{2, 0, 2}, cost{1, 0, 1}},
		{
			"naive with an effect on another item", r, func(id string) { naive{r}.handle(t, "e"+id, effect(r, id)) },
			cost{4, 1, 3}, cost{1, 1, 0},
		},
		{"semel, mode A2 with one effect", r, func(id string) { runA2(r, "a2"+id) }, cost{2, 0, 5}, cost{1, 0, 1}},
		{"two tables (gate), mode A", gated, func(id string) { runA(gated, id) }, cost{2, 0, 5}, cost{1, 0, 1}},
		{"two tables (gate), mode A2 with one effect", gated, func(id string) { runA2(gated, "a2"+id) }, cost{2, 0, 7}, cost{1, 0, 1}},
	} {
		id := fmt.Sprint("message-", len(x.name))
		first := x.r.measure(t, func() { x.run(id) })
		again := x.r.measure(t, func() { x.run(id) })
		if first != x.new || again != x.dupe {
			t.Errorf("%s: new %+v and duplicate %+v, wanted %+v and %+v", x.name, first, again, x.new, x.dupe)
		}
		fmt.Fprintf(&table, "| %s | %d | %g | %g | %d | %g | %g |\n", x.name,
			first.Calls, first.Reads, first.Writes, again.Calls, again.Reads, again.Writes)
	}
	t.Log(table.String())
}

// TestUnitsOfADuplicate asserts what a duplicate costs by the size of its record, without a cache: the condition of the
// claim fails, and DynamoDB charges that as a write of the item. It prints the table of the documentation.
func TestUnitsOfADuplicate(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| result | duplicate: calls | read units | write units |\n|---|---|---|---|\n")
	for _, x := range []struct {
		result int
		want   cost
	}{
		{0, cost{1, 0, 1}}, {512, cost{1, 0, 1}}, {4 << 10, cost{1, 0, 5}}, {16 << 10, cost{1, 0, 17}}, {64 << 10, cost{1, 0, 65}},
		{200 << 10, cost{1, 0, 201}},
	} {
		r := newFixture(t, Options{})
		g := claimOne(t, r.Store, claimOf("k"), driver.Acquired)
		f := completion(g)
		f.Result = []byte(strings.Repeat("r", x.result))
		finishOne(t, r.Store, f, driver.Applied)
		got := r.measure(t, func() { claimOne(t, r.Store, claimOf("k"), driver.Replay) })
		if got != x.want {
			t.Errorf("a result of %d bytes: %+v, want %+v", x.result, got, x.want)
		}
		fmt.Fprintf(&table, "| %d bytes | %d | %g | %g |\n", x.result, got.Calls, got.Reads, got.Writes)
	}
	t.Log(table.String())
}

// TestBatchesShareTransactions commits many works: as few calls as the limit of 100 items allows, and the same units.
func TestBatchesShareTransactions(t *testing.T) {
	r := newFixture(t, Options{})
	var cs []driver.Claim
	for i := range 60 {
		cs = append(cs, claimOf(fmt.Sprint(i)))
	}
	gs, err := r.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	var works []driver.Work
	for _, g := range gs {
		works = append(works, r.withEffect(g))
	}
	got := r.measure(t, func() {
		o, err := r.Commit(t.Context(), works...)
		if err != nil || o[59] != driver.Applied {
			t.Fatalf("commit returned %v, %v", o, err)
		}
	})
	if want := (cost{2, 0, 240}); got != want {
		t.Errorf("60 works with one effect each cost %+v, wanted %+v", got, want)
	}
}

// TestMeterIsAnUpperBound compares the meter with what the fake charged, over a history with refusals of all kinds.
func TestMeterIsAnUpperBound(t *testing.T) {
	r := newFixture(t, Options{})
	other := r.again(t, nil)
	r.fake.ResetUsed()
	before, others := r.Consumed(), other.Consumed()
	for i := range 20 {
		g := claimOne(t, r.Store, claimOf(fmt.Sprint(i)), driver.Acquired)
		claimOne(t, r.Store, claimOf(fmt.Sprint(i)), driver.Busy)
		f := completion(g)
		f.Result = make([]byte, i*700)
		finishOne(t, r.Store, f, driver.Applied)
		claimOne(t, r.Store, claimOf(fmt.Sprint(i)), driver.Replay)
		r.clock.Advance(time.Second)
		finishOne(t, r.Store, f, driver.Applied)
	}
	// Transactions that are cancelled, by a record and by an effect.
	for i := range 20 {
		g := claimOne(t, r.Store, claimOf(fmt.Sprint("tx", i)), driver.Acquired)
		bad := r.withEffect(g)
		bad.Effects.(*Writes).Check(types.ConditionCheck{
			TableName: &r.ledger, Key: attrs{"id": text("nobody")}, ConditionExpression: aws.String("attribute_exists(id)"),
		})
		if _, err := r.Commit(t.Context(), bad); err == nil {
			t.Fatal("refused effects were written")
		}
		finishOne(t, other, driver.Finish{Hold: g.Hold, Final: driver.Park}, driver.Applied)
		if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Recovered {
			t.Fatalf("commit returned %v, %v", o, err)
		}
	}
	got := r.Consumed().Since(before)
	theirs := other.Consumed().Since(others)
	got.Calls, got.Reads, got.Writes = got.Calls+theirs.Calls, got.Reads+theirs.Reads, got.Writes+theirs.Writes
	var charged fakedynamodb.Units
	for _, u := range r.fake.Used() {
		charged.Calls += u.Calls
		charged.Read += u.Read
		charged.Write += u.Write
	}
	if got.Calls != int64(charged.Calls) || got.Reads != charged.Read || got.Writes < charged.Write || got.Writes > charged.Write*1.2 {
		t.Errorf("the meter says %+v, the service charged %+v", got, charged)
	}
}

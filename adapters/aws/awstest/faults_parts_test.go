package awstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dt "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	st "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("id-%d", i))
	}
	return all
}

// askedKeys returns the keys of a BatchGetItem that reached the service.
func askedKeys(t *testing.T, body string) (all []string) {
	t.Helper()
	var in struct {
		RequestItems map[string]struct {
			Keys           []map[string]map[string]string
			ConsistentRead bool
		}
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		t.Fatal(err)
	}
	for name, table := range in.RequestItems {
		if !table.ConsistentRead {
			t.Errorf("ConsistentRead of table %s is gone", name)
		}
		for _, k := range table.Keys {
			all = append(all, name+" "+k["pk"]["S"])
		}
	}
	return all
}

// TestUnprocessedKeys: the keys that were held back and those that were sent are all keys. A client that repeats unprocessed
// keys gets all items.
func TestUnprocessedKeys(t *testing.T) {
	for seed := range uint64(20) {
		w := &wire{}
		c, f := dynamoOn(w, Plan{Seed: seed, Rates: Rates{Partial: 1}})
		left := map[string]dt.KeysAndAttributes{}
		var want []string
		for _, name := range []string{"a", "b"} {
			of := dt.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
			for _, id := range ids(5) {
				of.Keys = append(of.Keys, key(id))
				want = append(want, name+" "+id)
			}
			left[name] = of
		}
		rounds := 0
		for ; len(left) > 0 && rounds < 50; rounds++ {
			out, err := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: left})
			if err != nil {
				t.Fatal(err)
			}
			left = out.UnprocessedKeys
		}
		var got []string
		for _, b := range w.bodies {
			got = append(got, askedKeys(t, b)...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || len(left) > 0 || rounds < 2 {
			t.Errorf("seed %d: after %d rounds %v was asked for, wanted %v; left %v", seed, rounds, got, want, left)
		}
		counted(t, f, Partial, rounds-1) // of one item none is held back
	}
}

func TestUnprocessedItems(t *testing.T) {
	for seed := range uint64(20) {
		w := &wire{}
		c, _ := dynamoOn(w, Plan{Seed: seed, Rates: Rates{Partial: 1}})
		left := map[string][]dt.WriteRequest{}
		for _, id := range ids(6) {
			left["t"] = append(left["t"], dt.WriteRequest{PutRequest: &dt.PutRequest{Item: key(id)}})
		}
		rounds := 0
		for ; len(left) > 0 && rounds < 50; rounds++ {
			out, err := c.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: left})
			if err != nil {
				t.Fatal(err)
			}
			left = out.UnprocessedItems
		}
		var got []string
		for _, b := range w.bodies {
			var in struct {
				RequestItems map[string][]struct {
					PutRequest struct{ Item map[string]map[string]string }
				}
			}
			if err := json.Unmarshal([]byte(b), &in); err != nil {
				t.Fatal(err)
			}
			for _, x := range in.RequestItems["t"] {
				got = append(got, x.PutRequest.Item["pk"]["S"])
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, ids(6)) || rounds < 2 {
			t.Errorf("seed %d: after %d rounds %v was written", seed, rounds, got)
		}
	}
}

// entries responds to batches of SQS: every entry that arrives succeeds.
func entries(op, body string) string {
	var in struct{ Entries []map[string]any }
	_ = json.Unmarshal([]byte(body), &in)
	out := []map[string]any{}
	for _, e := range in.Entries {
		out = append(out, map[string]any{"Id": e["Id"]})
	}
	b, _ := json.Marshal(map[string]any{"Successful": out, "Failed": []any{}})
	return string(b)
}

// TestFailedEntries: every entry is reported once, as successful or as failed. Failed entries were not carried out, or were
// so nevertheless.
func TestFailedEntries(t *testing.T) {
	for _, done := range []bool{false, true} {
		all := 0
		for seed := range uint64(20) {
			w := &wire{reply: entries}
			c, f := sqsOn(w, Plan{Seed: seed, Schedule: []Fault{
				{Operation: "DeleteMessageBatch", Call: 1, Kind: Partial, Done: done},
			}})
			in := &sqs.DeleteMessageBatchInput{QueueUrl: aws.String("q")}
			for _, id := range ids(4) {
				in.Entries = append(in.Entries, st.DeleteMessageBatchRequestEntry{Id: aws.String(id), ReceiptHandle: aws.String("r")})
			}
			out, err := c.DeleteMessageBatch(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range out.Failed {
				if got = append(got, *e.Id); e.SenderFault || aws.ToString(e.Code) != "InternalError" {
					t.Errorf("a failed entry says %+v", e)
				}
			}
			for _, e := range out.Successful {
				got = append(got, *e.Id)
			}
			slices.Sort(got)
			if !slices.Equal(got, ids(4)) || len(out.Failed) == 0 {
				t.Errorf("seed %d: %d failed, reported are %v", seed, len(out.Failed), got)
			}
			asked := struct{ Entries []any }{}
			for _, b := range w.bodies {
				_ = json.Unmarshal([]byte(b), &asked)
			}
			want := len(out.Successful)
			if done {
				want = 4
			}
			if len(asked.Entries) != want {
				t.Errorf("seed %d: %d entries were carried out, wanted %d", seed, len(asked.Entries), want)
			}
			counted(t, f, Partial, 1)
			all += len(out.Failed) / 4
		}
		if all == 0 || all == 20 {
			t.Errorf("in %d of 20 batches all entries failed: some, not all of them", all)
		}
	}
}

// TestFM39_StaleReads: only a read that is not consistent may be stale.
func TestFM39_StaleReads(t *testing.T) {
	n := 0
	w := &wire{reply: func(string, string) string {
		n++
		return fmt.Sprintf(`{"Item":{"v":{"N":"%d"}}}`, n)
	}}
	c, f := dynamoOn(w, Plan{Schedule: []Fault{
		{Operation: "GetItem", Call: 1, Kind: Stale}, // never seen before: nothing
		{Operation: "GetItem", Call: 4, Kind: Stale},
		{Operation: "GetItem", Call: 5, Kind: Stale}, // consistent: fresh
		{Operation: "GetItem", Call: 6, Kind: Stale}, // another key
	}})
	for i, r := range []struct {
		id         string
		consistent bool
		want       string
	}{{"1", false, ""}, {"1", true, "1"}, {"1", false, "2"}, {"1", false, "2"}, {"1", true, "3"}, {"2", false, ""}, {"1", false, "4"}} {
		out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: aws.String("t"), Key: key(r.id), ConsistentRead: aws.Bool(r.consistent),
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v, ok := out.Item["v"].(*dt.AttributeValueMemberN); ok {
			got = v.Value
		}
		if got != r.want {
			t.Errorf("read %d of %s returned %q, wanted %q", i+1, r.id, got, r.want)
		}
	}
	counted(t, f, Stale, 3)
}

// A stale response is one to the same request: a response with other attributes of the item would be wrong.
func TestStaleResponsesHaveTheSameProjection(t *testing.T) {
	w := &wire{reply: func(_, body string) string {
		if strings.Contains(body, "ProjectionExpression") {
			return `{"Item":{"part":{"S":"x"}}}`
		}
		return `{"Item":{"whole":{"S":"x"}}}`
	}}
	c, _ := dynamoOn(w, Plan{Schedule: []Fault{{Operation: "GetItem", Call: 3, Kind: Stale}}})
	whole := &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key("1")}
	part := &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key("1"), ProjectionExpression: aws.String("part")}
	for i, in := range []*dynamodb.GetItemInput{whole, part, whole} {
		out, err := c.GetItem(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if _, isWhole := out.Item["whole"]; isWhole != (in == whole) {
			t.Errorf("read %d got %v", i, out.Item)
		}
	}
}

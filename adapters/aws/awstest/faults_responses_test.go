package awstest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dt "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TestTorn: the service carried out the request, and half of its response arrives. A client that only reads the status would
// take the lost response for a success or a refusal.
func TestTorn(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		w := &wire{status: status, reply: func(string, string) string {
			return `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}`
		}}
		c, f := dynamoOn(w, at("PutItem", Torn))
		err := put(t.Context(), c)
		var response *smithyhttp.ResponseError
		var api smithy.APIError
		if !errors.Is(err, ErrFault) || !errors.As(err, &response) || response.HTTPStatusCode() != status || errors.As(err, &api) {
			t.Errorf("got %v, want a broken response of status %d without a code", err, status)
		}
		if w.carriedOut() != 1 {
			t.Errorf("carried out %d times", w.carriedOut())
		}
		counted(t, f, Torn, 1)
	}
	w := &wire{reply: func(string, string) string { return `{"Messages":[]}` }}
	c, _ := sqsOn(w, at("ReceiveMessage", Torn))
	if out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("q")}); !errors.Is(err, ErrFault) {
		t.Errorf("got %v, %v", out, err)
	}
}

// pay sends a transaction of two items with a token.
func pay(t *testing.T, c *dynamodb.Client, token string) error {
	t.Helper()
	item := dt.TransactWriteItem{Delete: &dt.Delete{TableName: aws.String("t"), Key: key("1")}}
	_, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
		TransactItems: []dt.TransactWriteItem{item, item}, ClientRequestToken: &token,
	})
	return err
}

// said returns the code of an error, with the reasons of a cancelled transaction except None.
func said(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return fmt.Sprint(err)
	}
	out := api.ErrorCode()
	var cancelled *dt.TransactionCanceledException
	if errors.As(err, &cancelled) {
		for _, r := range cancelled.CancellationReasons {
			if *r.Code != "None" {
				out += " " + *r.Code
			}
		}
	}
	return out
}

// Throttling of a transaction is an error of its own, or the reason of one of its items.
func TestThrottledTransactions(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(40) {
		w := &wire{}
		p := at("TransactWriteItems", Throttled)
		p.Seed = seed
		c, _ := dynamoOn(w, p)
		seen[said(pay(t, c, "x"))]++
		if w.carriedOut() != 0 {
			t.Fatal("carried out")
		}
	}
	for _, want := range []string{
		"ThrottlingException", "ProvisionedThroughputExceededException", "TransactionCanceledException ThrottlingError",
		"TransactionCanceledException ProvisionedThroughputExceeded",
	} {
		if seen[want] == 0 {
			t.Errorf("never %s: %v", want, seen)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("also %v", seen)
	}
}

// A conflicting transaction can be in progress itself, but only if it was sent before.
func TestTransactionsInProgress(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		p := at("TransactWriteItems", Conflict, Fault{Operation: "TransactWriteItems", Call: 2, Kind: After},
			Fault{Operation: "TransactWriteItems", Call: 3, Kind: Conflict})
		p.Seed = seed
		c, _ := dynamoOn(&wire{}, p)
		if got := said(pay(t, c, "x")); got != "TransactionCanceledException TransactionConflict" {
			t.Errorf("the first request returned %s", got)
		}
		if err := pay(t, c, "x"); !errors.Is(err, ErrFault) {
			t.Errorf("the second request returned %v", err)
		}
		seen[said(pay(t, c, "x"))]++
	}
	if seen["TransactionInProgressException"] == 0 || seen["TransactionCanceledException TransactionConflict"] == 0 || len(seen) != 2 {
		t.Errorf("the third requests returned %v", seen)
	}
}

// Responses that faults make or change have DynamoDB's checksum: the SDK would log a difference.
func TestFaultsHaveChecksums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaults(Plan{Schedule: []Fault{
			{Operation: "PutItem", Call: 1, Kind: Internal}, {Operation: "PutItem", Call: 2, Kind: Unavailable},
			{Operation: "PutItem", Call: 3, Kind: Throttled}, {Operation: "PutItem", Call: 4, Kind: Conflict},
			{Operation: "GetItem", Call: 1, Kind: Stale}, {Operation: "BatchGetItem", Call: 1, Kind: Partial},
		}})
		var complaints []string
		config := once(Config(&wire{sealed: true}, f.Wrap))
		config.Logger = logging.LoggerFunc(func(_ logging.Classification, format string, _ ...any) {
			complaints = append(complaints, format)
		})
		c := dynamodb.NewFromConfig(config)
		for range 5 {
			_ = put(t.Context(), c)
		}
		_, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key("1")})
		_, err2 := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]dt.KeysAndAttributes{
			"t": {Keys: []map[string]dt.AttributeValue{key("1"), key("2")}},
		}})
		if err = errors.Join(err, err2); err != nil || len(complaints) != 0 || len(f.Counts()) != 6 {
			t.Errorf("%v; the SDK complains: %v; %v", err, complaints, f.Counts())
		}
	})
}

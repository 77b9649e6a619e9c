package campaign

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// TestPairSuite runs the suite of pairs on SQS with DynamoDB, with a real clock and a visibility of two seconds: SQS counts
// whole seconds. Effects commit with the record in one DynamoDB transaction.
func TestPairSuite(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		t.Run("orders"+suffix, func(t *testing.T) {
			if testing.Short() && suffix != "" {
				t.Skip("FIFO queues take as long again; leave -short out")
			}
			semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup { return openPair(t, "orders"+suffix, "dead"+suffix) })
		})
	}
}

// openPair opens a queue without a redrive policy, with which the engine would defer duplicates for minutes.
func openPair(t testing.TB, queue, dead string) semeltest.PairSetup {
	t.Helper()
	visible := semeltest.Longer(t, 2*time.Second)
	s, d := fakesqs.New(fakesqs.Options{}), fakedynamodb.New(fakedynamodb.Options{})
	for _, name := range []string{queue, dead} {
		if _, err := s.CreateQueue(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	client := awsdynamodb.NewFromConfig(awstest.Config(d))
	if err := createTables(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	q, err := sqs.Open(t.Context(), awssqs.NewFromConfig(awstest.Config(s)), queue, sqs.Options{
		Visibility: visible, Wait: time.Second, DeadLetterQueue: dead, Ungrouped: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := dynamodb.Open(t.Context(), client, records, dynamodb.Options{
		MaxClockSkew: time.Millisecond, // one clock: duplicates need not wait for others
	})
	if err != nil {
		t.Fatal(err)
	}
	return semeltest.PairSetup{
		Queue: q, Store: store, Visibility: visible, Ledger: ledgerOf(d),
		Tx: func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
			return semel.InTx(func(ctx context.Context, tx *dynamodb.Writes, a *semel.Attempt) error {
				return fn(ctx, func(id string) error { addEffect(tx, id); return nil }, a)
			})
		},
	}
}

func addEffect(tx *dynamodb.Writes, id string) {
	tx.Add(ledger, map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}, "n", 1)
}

// ledgerOf counts effects in the table.
func ledgerOf(d *fakedynamodb.Server) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var e *dynamodb.Writes
			c.Offers(&e)
			return e
		},
		Add: func(e any, id string) { addEffect(e.(*dynamodb.Writes), id) },
		Refuse: func(e any) {
			e.(*dynamodb.Writes).Check(types.ConditionCheck{
				TableName: aws.String(ledger), Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "none"}},
				ConditionExpression: aws.String("attribute_exists(id)"),
			})
		},
		Count: func(_ context.Context, id string) (int, error) {
			for _, it := range d.Items(ledger) {
				if text(it, "id") == id {
					return number(it, "n"), nil
				}
			}
			return 0, nil
		},
	}
}

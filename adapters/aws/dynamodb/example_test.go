package dynamodb_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// A consumer whose effects are items: they are written in one transaction with the idempotency record. The fake stands in
// for the service; a program makes its client with config.LoadDefaultConfig and awsdynamodb.NewFromConfig.
func Example() {
	ctx := context.Background()
	client := awsdynamodb.NewFromConfig(awstest.Config(fakedynamodb.New(fakedynamodb.Options{})))
	if err := dynamodb.Create(ctx, client, "semel", dynamodb.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	_, err := client.CreateTable(ctx, &awsdynamodb.CreateTableInput{
		TableName: aws.String("accounts"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamodb.Open(ctx, client, "semel", dynamodb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	account := map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "jane"}}

	queue := memory.NewQueue("payments")
	// The producer sends payment 1 twice: a retry after a network error gives it another message id.
	for _, body := range []string{`{"payment":1}`, `{"payment":2}`, `{"payment":1}`} {
		if err := queue.Send(ctx, semel.Message{Body: []byte(body)}); err != nil {
			log.Fatal(err)
		}
	}
	c, err := semel.New(semel.Config{
		Queue: queue, Store: store, Limit: 3,
		Key: key.FromJSON("/payment"),
		Handler: semel.InTx(func(_ context.Context, w *dynamodb.Writes, _ *semel.Attempt) error {
			w.Add("accounts", account, "balance", 100)
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	got, err := client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: aws.String("accounts"), Key: account})
	if err != nil {
		log.Fatal(err)
	}
	s := c.Summary()
	fmt.Printf("balance %s; %d executed, %d replayed\n", got.Item["balance"].(*types.AttributeValueMemberN).Value, s.Effects, s.Replayed)
	// Output: balance 200; 2 executed, 1 replayed
}

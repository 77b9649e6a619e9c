package stepfunctions_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesfn"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// An upload whose event arrives twice. The fake replaces the service. A program makes its client with
// config.LoadDefaultConfig and sfn.NewFromConfig, and its store with dynamodb.Open.
func Example() {
	ctx := context.Background()
	fake := fakesfn.New(fakesfn.Options{})
	starter := &stepfunctions.Starter{
		Client:          sfn.NewFromConfig(awstest.Config(fake)),
		StateMachineARN: fake.Machine("csv-processing", fakesfn.Standard),
		Store:           memory.NewStore(),
	}
	for range 2 {
		key := key.Tuple("reports", "in/2026 11.csv", "version-7")
		execution, decision, err := starter.Start(ctx, key, []byte(`{"bucket":"reports","key":"in/2026 11.csv","version":"version-7"}`))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision, execution.Name)
	}
	fmt.Println(len(fake.Executions("csv-processing")), "execution:", starter.Guarantee())
	// Output:
	// executed in-2026-11-csv-version-7-i4afbhi3y54mx4745gvfz6dq3akt74oatk3jvlnnjetqhppndpva
	// replayed in-2026-11-csv-version-7-i4afbhi3y54mx4745gvfz6dq3akt74oatk3jvlnnjetqhppndpva
	// 1 execution: one execution per key while its record is kept (100 days), and until 90 days after it closed
}

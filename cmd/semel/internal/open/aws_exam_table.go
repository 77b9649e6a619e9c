package open

import (
	"context"

	"github.com/semel-dev/semel/adapters/aws/dynamodb"
)

// Examine tells what a worker meets in the table.
func (d *dynamoDB) Examine(ctx context.Context, _ Options) ([]Fact, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	found, err := dynamodb.Examine(ctx, d.client, d.t.aws.name, d.o)
	if err != nil {
		return nil, awsError(d.t, "examine", err, missingTable(d.t))
	}
	facts := make([]Fact, len(found))
	for i, f := range found {
		facts[i] = tableFact(f, d.o.Observe)
	}
	return facts, nil
}

// tableFact is a fact of the adapter. Where clocks are not compared, a clock that is off is no danger.
func tableFact(f dynamodb.Fact, observe bool) Fact {
	if observe && f.Check == "clock" {
		return Fact{Level: OK, Check: f.Check, Detail: "not compared: a lease has ended when its record stayed unchanged for all of it"}
	}
	return Fact{Level: f.Level, Check: f.Check, Detail: f.Detail, Try: f.Try}
}

package open

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// AWS finds out with which region, endpoint and credentials a URL of AWS is opened, for those who make and remove queues and
// tables. It asks no service but those that give credentials. An error is of usage or unreachable.
func AWS(ctx context.Context, flag, raw string) (aws.Config, error) {
	t, err := Parse(flag, raw)
	if err != nil {
		return aws.Config{}, err
	}
	if t.aws == nil {
		return aws.Config{}, output.Usage("--%s %s is not on AWS", flag, t.Shown).WithHint("--%s '%s'", flag, sqsForm)
	}
	return t.aws.load(ctx, t)
}

// Explain adds the place to an error of a database or service, never a password. doing is a verb ("make a queue in").
func Explain(flag, raw, doing string, err error) error {
	t, perr := Parse(flag, raw)
	switch {
	case err == nil || perr != nil:
		return err
	case t.aws != nil:
		return awsError(t, doing, err, "")
	case t.nats != nil:
		return natsError(t, doing, err)
	case t.kind == postgresKind:
		return unreachableServer(t, err)
	case t.kind == redisKind:
		return redisError(t, doing, err)
	case t.kind == sqliteKind:
		return unreachableFile(t, err)
	}
	return err
}

// MissingQueue reports that SQS knows no queue of that name.
func MissingQueue(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (codeOf(api) == "QueueDoesNotExist" || codeOf(api) == "NonExistentQueue")
}

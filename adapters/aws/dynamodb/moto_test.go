package dynamodb

import (
	"testing"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	motoserver "github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

// moto is a client of a moto_server of the test's own. Where there is none the test is left out.
func moto(t *testing.T) *awsdynamodb.Client {
	t.Helper()
	cfg := motoserver.Config(motoserver.Start(t))
	cfg.RetryMaxAttempts = 0 // the SDK's own
	return awsdynamodb.NewFromConfig(cfg)
}

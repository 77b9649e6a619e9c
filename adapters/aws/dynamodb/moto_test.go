package dynamodb

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	motoserver "github.com/semel-dev/semel/adapters/aws/awstest/moto"
)

// moto is a client of a moto_server of the test's own. Without one the test is not passed, and says so.
func moto(t *testing.T) *awsdynamodb.Client {
	t.Helper()
	return awsdynamodb.NewFromConfig(aws.Config{
		Region:       awstest.Region,
		Credentials:  credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		BaseEndpoint: aws.String(motoserver.Start(t)),
	})
}

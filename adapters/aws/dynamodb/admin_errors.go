package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// explain adds to an error what is wrong with the access to a table, and how to fix it. action is the API's operation, which
// is also the name of the IAM action that allows it. An error without a better explanation is returned as it is. err is
// always wrapped.
func explain(err error, action, table string) error {
	if why := reason(err, action, table); why != "" {
		return fmt.Errorf("%s: %w", why, err)
	}
	return err
}

func reason(err error, action, table string) string {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) {
		return fmt.Sprintf("table %q does not exist in this region and account; create it (semel migrate, or dynamodb.Create), "+
			"or correct its name, the region or the endpoint", table)
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if m := api.ErrorMessage(); strings.Contains(m, "key element does not match") || strings.Contains(m, "ype mismatch for key") {
			return fmt.Sprintf("the keys of table %q are not those in the options, or not strings: name the table's own in the "+
				"options (semel doctor shows them), or use another table", table)
		}
		return refusal(api.ErrorCode(), action, table)
	}
	text := err.Error()
	var dns *net.DNSError
	var broken *smithy.DeserializationError
	switch {
	case strings.Contains(text, "Missing Region"):
		return "no region is configured; give one (region=… in the URL, AWS_REGION, or region in the profile)"
	case strings.Contains(text, "get credentials") || strings.Contains(text, "failed to retrieve credentials"):
		return "no AWS credentials were found; give some (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role of the " +
			"machine, container or function)"
	case errors.As(err, &dns):
		return fmt.Sprintf("no host %q is known; fix the region or the endpoint", dns.Name)
	case errors.As(err, &broken):
		return fmt.Sprintf("the endpoint is not DynamoDB%s; fix the endpoint", status(err))
	case strings.Contains(text, "request send failed"):
		return "DynamoDB could not be reached; check the endpoint and the network"
	}
	return ""
}

// refusal explains the error codes that every operation of the API can return.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
func refusal(code, action, table string) string {
	switch code {
	case "AccessDeniedException", "AccessDenied", "NotAuthorized":
		return fmt.Sprintf("access denied: allow the IAM action dynamodb:%s on table %q", action, table)
	case "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "IncompleteSignatureException",
		"SignatureDoesNotMatch":
		return "the AWS credentials are not those of an account that the endpoint knows; check access key, secret key and region"
	case "ExpiredTokenException", "ExpiredToken", "RequestExpired":
		return "the AWS credentials have expired; renew them, and check that the clock of this machine is right"
	case "MissingAuthenticationToken", "MissingAuthenticationTokenException":
		return "the request had no AWS credentials; give some (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role)"
	case "UnknownOperationException", "UnknownOperation":
		return fmt.Sprintf("the endpoint does not know the operation %s of DynamoDB; fix the endpoint", action)
	}
	return ""
}

// status returns the HTTP status of a response, in brackets.
func status(err error) string {
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) && resp.HTTPStatusCode() != 0 {
		return fmt.Sprintf(" (HTTP %d %s)", resp.HTTPStatusCode(), http.StatusText(resp.HTTPStatusCode()))
	}
	return ""
}

// denied reports that an operation is not allowed. A check that only reads goes on without it.
func denied(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "AccessDenied")
}

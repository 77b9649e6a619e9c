package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ErrNoQueue is wrapped by the error of a queue that does not exist.
var ErrNoQueue = errors.New("the queue does not exist")

// explain adds a hint to the error of a failed call; err stays wrapped. of is the queue's name.
func explain(op, of, region string, err error) error {
	code, text := codeOf(err), err.Error()
	where := ""
	if region != "" {
		where = " in region " + region
	}
	hint := ""
	switch {
	case code == "QueueDoesNotExist" || code == "NonExistentQueue":
		return fmt.Errorf("sqs: %s of queue %q%s: %w: create it with sqs.Create or \"aws sqs create-queue --queue-name %s\", "+
			"or correct name, region and endpoint: %w", op, of, where, ErrNoQueue, of, err)
	case strings.HasPrefix(code, "AccessDenied"):
		hint = fmt.Sprintf("allow sqs:%s on this queue to the credentials in use", permission(op))
	case strings.HasPrefix(code, "Kms") || strings.HasPrefix(code, "KMS"):
		hint = "the queue is encrypted: allow kms:Decrypt and kms:GenerateDataKey on its key"
	case code == "InvalidClientTokenId" || code == "UnrecognizedClientException" || code == "InvalidSecurity" ||
		code == "SignatureDoesNotMatch" || code == "ExpiredToken" || code == "ExpiredTokenException":
		hint = "the credentials are not valid: renew them (aws sts get-caller-identity shows whose they are)"
	case code == "" && (strings.Contains(text, "Missing Region") || strings.Contains(text, "missing region")):
		hint = "no region: set AWS_REGION, or region= in the queue's URL"
	case code == "" && (strings.Contains(text, "get identity") || strings.Contains(text, "credential")):
		hint = "no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	case code == "OverLimit":
		hint = "too many messages are in flight: settle them, or lower the visibility"
	case code == "PurgeQueueInProgress":
		hint = "a queue can be purged once in 60 s: wait"
	}
	if hint == "" {
		return fmt.Errorf("sqs: %s of queue %q%s: %w", op, of, where, err)
	}
	return fmt.Errorf("sqs: %s of queue %q%s: %s: %w", op, of, where, hint, err)
}

// permission returns the action in a policy that an operation needs: a batch has that of the single operation.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html
func permission(op string) string { return strings.TrimSuffix(op, "Batch") }

// codeOf returns the code of an error of the service without its namespace; "" for any other error.
func codeOf(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return shortCode(api.ErrorCode())
}

func shortCode(code string) string { return code[strings.LastIndexAny(code, "#.")+1:] }

// regionOf returns the region of a client, if it is known; missing: the client definitely has none.
func regionOf(c Client) (region string, missing bool) {
	o, ok := c.(interface{ Options() awssqs.Options })
	if !ok {
		return "", false
	}
	opts := o.Options()
	return opts.Region, opts.Region == ""
}

// certain reports that a call that failed with err changed nothing: the service refused it, or never got all of it.
func certain(err error) bool {
	var broke *net.OpError
	if errors.As(err, &broke) && (broke.Op == "dial" || broke.Op == "write") {
		return true
	}
	var re *smithyhttp.ResponseError
	return codeOf(err) != "" && errors.As(err, &re) && re.HTTPStatusCode() < http.StatusInternalServerError
}

// brokeWriting reports a connection that broke before the request was written: the server had closed it while it was idle.
// net/http does not repeat a POST whose body it cannot rewind, as that of the SDK.
func brokeWriting(err error) bool {
	var broke *net.OpError
	return errors.As(err, &broke) && broke.Op == "write"
}

// staleEntry reports that an entry failed because of its receipt: it has expired, or the message is no longer in flight. A
// FIFO queue reports that, a standard queue hardly ever.
func staleEntry(e *types.BatchResultErrorEntry) bool {
	return staleCode(shortCode(deref(e.Code)))
}

func staleCode(code string) bool {
	switch code {
	case "ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight", "InvalidReceiptHandle", "InvalidIdFormat":
		return true
	}
	return false
}

// refusedEntry reports that repeating an entry of a send is useless.
func refusedEntry(e *types.BatchResultErrorEntry) bool {
	code := strings.ToLower(shortCode(deref(e.Code)))
	return e.SenderFault && !strings.Contains(code, "throttl") && !strings.Contains(code, "toomany")
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// bounded limits one call: a hanging connection must not block its caller.
func (q *Queue) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, q.o.CallTimeout)
}

func (q *Queue) failed(op string, err error) error { return explain(op, q.name, q.region, err) }

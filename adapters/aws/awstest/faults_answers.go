package awstest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The error answers, as the services write them: a JSON object whose __type names the error. SQS says its older name too,
// in the header that clients of the query protocol go by.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html

const dynamo = "DynamoDB_20120810"

func (c *call) failure(status int, shape, message, query string, more map[string]any) *reply {
	body := map[string]any{"__type": shape, "message": message}
	for k, v := range more {
		body[k] = v
	}
	head := http.Header{}
	head.Set("Content-Type", "application/x-amz-json-1.0")
	if query != "" && c.service != dynamo {
		head.Set("X-Amzn-Query-Error", query)
	}
	return &reply{status: status, head: head, body: encode(body)}
}

func (c *call) internal() *reply {
	if c.service == dynamo {
		return c.failure(500, "com.amazonaws.dynamodb.v20120810#InternalServerError", "Internal server error", "", nil)
	}
	return c.failure(500, "com.amazon.coral.service#InternalFailure", "Internal failure", "InternalFailure;Receiver", nil)
}

func (c *call) unavailable() *reply {
	return c.failure(503, "com.amazon.coral.availability#ServiceUnavailableException",
		"The service is temporarily unable to handle the request.", "ServiceUnavailable;Receiver", nil)
}

func (c *call) throttled() *reply {
	switch {
	case c.service != dynamo:
		return c.failure(400, "com.amazonaws.sqs#RequestThrottled", "Request was throttled.", "RequestThrottled;Sender", nil)
	case c.fate.random.IntN(2) == 0:
		return c.failure(400, "com.amazon.coral.availability#ThrottlingException",
			"Throughput exceeds the current capacity of your table or index.", "", nil)
	}
	return c.failure(400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
		"The level of configured provisioned throughput for the table was exceeded.", "", nil)
}

// conflict is another transaction that is at one of the items just now.
func (c *call) conflict(ctx context.Context) (*reply, error) {
	const message = "Transaction is ongoing for the item"
	switch c.op {
	case "PutItem", "UpdateItem", "DeleteItem":
		c.f.count(Conflict)
		return c.failure(400, "com.amazonaws.dynamodb.v20120810#TransactionConflictException", message, "", nil), nil
	case "TransactWriteItems", "TransactGetItems":
		var in struct{ TransactItems []json.RawMessage }
		if err := json.Unmarshal(c.body, &in); err != nil || len(in.TransactItems) == 0 {
			return c.read(ctx) // the service refuses it
		}
		c.f.count(Conflict)
		return c.cancelled(len(in.TransactItems), c.fate.random.IntN(len(in.TransactItems)), message), nil
	}
	return c.read(ctx)
}

// cancelled is a transaction of n items that was cancelled for a conflict at one of them.
func (c *call) cancelled(n, at int, message string) *reply {
	reasons, codes := make([]map[string]any, n), make([]string, n)
	for i := range reasons {
		reasons[i], codes[i] = map[string]any{"Code": "None"}, "None"
	}
	reasons[at] = map[string]any{"Code": "TransactionConflict", "Message": message}
	codes[at] = "TransactionConflict"
	return c.failure(400, "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", fmt.Sprintf(
		"Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", ")),
		"", map[string]any{"CancellationReasons": reasons})
}

// encode writes what was decoded from JSON, or made of such values.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such value
	}
	return b
}

package awstest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// Error responses as the services write them: a JSON object whose __type names the error. SQS also sends the older name in a
// header for clients of the query protocol.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html

const (
	dynamo        = "DynamoDB_20120810"
	stepFunctions = "AWSStepFunctions"
)

func (c *call) failure(status int, shape, message, query string, more map[string]any) *reply {
	body := map[string]any{"__type": shape, "message": message}
	for k, v := range more {
		body[k] = v
	}
	a := c.made(status, encode(body))
	if query != "" && c.service != dynamo {
		a.head.Set("X-Amzn-Query-Error", query)
	}
	return a
}

// made returns a response that the fault makes by itself.
func (c *call) made(status int, body []byte) *reply {
	a := &reply{status: status, head: http.Header{}, body: body}
	a.head.Set("Content-Type", "application/x-amz-json-1.0")
	c.seal(a)
	return a
}

// seal sets the checksum of DynamoDB's responses.
func (c *call) seal(a *reply) {
	if c.service == dynamo {
		a.head.Set("X-Amz-Crc32", awsjson.Checksum(a.body))
	}
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

// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
func (c *call) throttled() *reply {
	const exceeded = "The level of configured provisioned throughput for the table was exceeded."
	if c.service == stepFunctions {
		return c.failure(400, "com.amazon.coral.availability#ThrottlingException", "Rate exceeded", "", nil)
	}
	if c.service != dynamo {
		return c.failure(403, "com.amazonaws.sqs#RequestThrottled", "Request was throttled.", "RequestThrottled;Sender", nil)
	}
	kinds := 2
	n := c.transacted()
	if n > 0 {
		kinds = 4
	}
	switch c.fate.random.IntN(kinds) {
	case 0:
		return c.failure(400, "com.amazon.coral.availability#ThrottlingException",
			"Throughput exceeds the current capacity of your table or index.", "", nil)
	case 1:
		return c.failure(400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", exceeded, "", nil)
	case 2:
		return c.cancelled(n, c.fate.random.IntN(n), "ThrottlingError", "Throughput exceeds the current capacity for one or more tables.")
	}
	return c.cancelled(n, c.fate.random.IntN(n), "ProvisionedThroughputExceeded", exceeded)
}

// transaction is the part of TransactWriteItems and TransactGetItems that faults need.
type transaction struct {
	TransactItems      []json.RawMessage
	ClientRequestToken string
}

func (c *call) transaction() (in transaction) {
	if c.op == "TransactWriteItems" || c.op == "TransactGetItems" {
		_ = json.Unmarshal(c.body, &in) // invalid input has no items: the service refuses it
	}
	return in
}

// transacted returns the number of items of a transaction, 0 for other operations.
func (c *call) transacted() int { return len(c.transaction().TransactItems) }

// sending remembers the token of a transaction that is sent.
func (c *call) sending() {
	if token := c.transaction().ClientRequestToken; token != "" {
		c.f.mu.Lock()
		c.f.tokens[token] = true
		c.f.mu.Unlock()
	}
}

func (c *call) sentBefore(token string) bool {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return c.f.tokens[token]
}

// conflict simulates another transaction on one of the items.
func (c *call) conflict(ctx context.Context) (*reply, error) {
	const message = "Transaction is ongoing for the item"
	switch c.op {
	case "PutItem", "UpdateItem", "DeleteItem":
		c.f.count(Conflict)
		return c.failure(400, "com.amazonaws.dynamodb.v20120810#TransactionConflictException", message, "", nil), nil
	case "TransactWriteItems", "TransactGetItems":
		in := c.transaction()
		n := len(in.TransactItems)
		if n == 0 {
			return c.read(ctx) // the service refuses it
		}
		c.f.count(Conflict)
		if c.sentBefore(in.ClientRequestToken) && c.fate.random.IntN(2) == 0 {
			return c.failure(400, "com.amazonaws.dynamodb.v20120810#TransactionInProgressException",
				"The transaction with the given request token is already in progress.", "", nil), nil
		}
		return c.cancelled(n, c.fate.random.IntN(n), "TransactionConflict", message), nil
	}
	return c.read(ctx)
}

// cancelled returns the response for a transaction of n items that was cancelled because of one of them.
func (c *call) cancelled(n, at int, code, message string) *reply {
	reasons, codes := make([]map[string]any, n), make([]string, n)
	for i := range reasons {
		reasons[i], codes[i] = map[string]any{"Code": "None"}, "None"
	}
	reasons[at], codes[at] = map[string]any{"Code": code, "Message": message}, code
	return c.failure(400, "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", fmt.Sprintf(
		"Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", ")),
		"", map[string]any{"CancellationReasons": reasons})
}

// encode writes values that were decoded from JSON, or made of such values.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such value
	}
	return b
}

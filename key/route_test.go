package key_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// TestRoutesOfUnwrappedMessages: their routes come from headers.
func TestRoutesOfUnwrappedMessages(t *testing.T) {
	for want, m := range map[string]driver.Message{
		"SNS arn:t > EventBridge": {Body: []byte(`{"n":1}`), Headers: map[string]string{
			"sns-topic-arn": "arn:t", "sns-message-id": "m", "ce-source": "aws.events:1:r:s", "ce-id": "i",
		}},
		"SNS arn:t":  {Body: []byte(`hello`), Headers: map[string]string{"sns-topic-arn": "arn:t", "sns-message-id": "m", "ce-source": "arn:t", "ce-id": "m"}},
		"CloudEvent": {Headers: map[string]string{"ce-source": "/orders", "ce-id": "i"}},
		"":           {ID: "1", Body: []byte(`{"order":1}`), Headers: map[string]string{"idempotency-key": "k"}},
	} {
		if got := key.Route(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

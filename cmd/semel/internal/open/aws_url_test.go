package open

import (
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// A queue is found by its name, by its own URL at the service, and at an endpoint elsewhere.
func TestParseSQS(t *testing.T) {
	for raw, want := range map[string]struct{ name, own, region, endpoint string }{
		"sqs://orders":                                {"orders", "", "", ""},
		"SQS://My_Orders.fifo?region=eu-west-1":       {"My_Orders.fifo", "", "eu-west-1", ""},
		"sqs://?region=eu-west-1":                     {"", "", "eu-west-1", ""},
		"sqs://orders?endpoint=http://127.0.0.1:4566": {"orders", "", "", "http://127.0.0.1:4566"},
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders": {
			"orders", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "eu-west-1", "",
		},
		"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders": {
			"orders", "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders", "cn-north-1", "",
		},
		"https://eu-west-1.queue.amazonaws.com/123456789012/orders": {
			"orders", "https://eu-west-1.queue.amazonaws.com/123456789012/orders", "eu-west-1", "",
		},
		"https://sqs-fips.us-east-1.amazonaws.com/123456789012/orders": {
			"orders", "https://sqs-fips.us-east-1.amazonaws.com/123456789012/orders", "us-east-1", "https://sqs-fips.us-east-1.amazonaws.com",
		},
		"https://vpce-1-2.sqs.us-east-1.vpce.amazonaws.com/123456789012/orders.fifo": {
			"orders.fifo", "https://vpce-1-2.sqs.us-east-1.vpce.amazonaws.com/123456789012/orders.fifo", "us-east-1",
			"https://vpce-1-2.sqs.us-east-1.vpce.amazonaws.com",
		},
		"http://127.0.0.1:4566/000000000000/orders?region=us-east-1&wait=5": {
			"orders", "http://127.0.0.1:4566/000000000000/orders", "us-east-1", "http://127.0.0.1:4566",
		},
	} {
		got, err := Parse("queue", raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		a := got.aws
		if a.name != want.name || a.own != want.own || a.region != want.region || a.endpoint != want.endpoint || got.Queue != want.name {
			t.Errorf("%s: %+v, want %+v", raw, a, want)
		}
	}
}

// What is refused shows nothing that may be secret.
func TestParseAWSRefuses(t *testing.T) {
	for _, raw := range []string{
		"sqs:orders", "sqs://orders/x", "sqs://orders:80", "sqs://or.ders", "sqs://orders?region=", "sqs://orders?region=a&region=b",
		"sqs://orders?region=a.b", "sqs://orders?endpoint=ftp://x", "sqs://orders?endpoint=http://u:hushhush@x", "sqs://orders#x",
		"sqs://k:hushhush@orders", "sqs://orders?aws_secret_access_key=hushhush", "sqs://orders?X-Amz-Security-Token=hushhush",
		"https://k:hushhush@sqs.eu-west-1.amazonaws.com/123456789012/orders", "https://sqs.eu-west-1.amazonaws.com/orders",
		"https://sqs.eu-west-1.amazonaws.com/12345678901/orders", "https://example.org", "sqs://orders?wait=-1", "sqs://orders?wait=1.5s",
		"sqs://" + strings.Repeat("a", 81), "dynamodb://", "dynamodb://ta", "dynamodb://table/x", "dynamodb://k:hushhush@table",
		"dynamodb://table?password=hushhush", "dynamodb://table?pk=a&skew=2h", "dynamodb://table?gate-key=x", "dynamodb://table?raw-keys=x",
		"dynamodb://table?statuses=COMPLETED", "dynamodb://table?statuses=DONE:x", "dynamodb://table?observe=2",
	} {
		got, err := Parse("queue", raw)
		switch {
		case err == nil:
			t.Errorf("%q: %+v", raw, got.aws)
		case output.As(err).Code != output.CodeUsage:
			t.Errorf("%q: %v is not of usage", raw, err)
		case strings.Contains(err.Error()+output.As(err).Hint, "hushhush"):
			t.Errorf("%q: %v shows a secret", raw, err)
		}
		if shown := Redact(raw); strings.Contains(shown, "hushhush") && !strings.Contains(raw, "endpoint") {
			t.Errorf("%q is shown as %q", raw, shown)
		}
	}
}

func TestAddParam(t *testing.T) {
	for _, c := range []struct{ raw, name, value, want string }{
		{"sqs://orders", "region", "eu-west-1", "sqs://orders?region=eu-west-1"},
		{"sqs://orders?wait=1", "region", "eu-west-1", "sqs://orders?wait=1&region=eu-west-1"},
		{"sqs://orders?region=a", "region", "eu-west-1", "sqs://orders?region=a"},
		{"https://sqs.eu-west-1.amazonaws.com/123456789012/o", "region", "us-east-1", "https://sqs.eu-west-1.amazonaws.com/123456789012/o"},
		{"dynamodb://table", "wait", "1s", "dynamodb://table"},
		{"dynamodb://table", "gate", "other", "dynamodb://table?gate=other"},
		{"sqlite:q.db", "region", "x", "sqlite:q.db"},
		{"sqs://bad name", "region", "x", "sqs://bad name"},
	} {
		if OnAWS(c.raw) {
			got, err := AddParam(c.raw, c.name, c.value)
			if err != nil || got != c.want {
				t.Errorf("%s %s: %s %v, want %s", c.raw, c.name, got, err, c.want)
			}
		}
	}
	if _, err := AddParam("sqs://orders", "wait", "30s"); err == nil {
		t.Error("wait=30s was put in")
	}
	if err := CheckParam("queue", "https://sqs.eu-west-1.amazonaws.com/123456789012/o", "region", "us-east-1"); err == nil {
		t.Error("two regions were taken")
	}
}

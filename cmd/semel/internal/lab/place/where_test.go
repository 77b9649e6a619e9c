package place

import (
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func TestWhereNamesAPair(t *testing.T) {
	for _, c := range []struct {
		where        Where
		queue, store side
	}{
		{Where{}, side{"sqlite", ""}, side{"sqlite", ""}},
		{Where{On: Embedded}, side{"sqlite", ""}, side{"sqlite", ""}},
		{Where{On: AWS}, side{"sqs", ""}, side{"dynamodb", ""}},
		{Where{On: Postgres}, side{"postgres", "postgres:///"}, side{"postgres", "postgres:///"}},
		{Where{Store: "postgres://h/d"}, side{"postgres", "postgres://h/d"}, side{"postgres", "postgres://h/d"}},
		{Where{Store: "mysql://h/d"}, side{"mysql", "mysql://h/d"}, side{"mysql", "mysql://h/d"}},
		{Where{Queue: "sqlite:a.db"}, side{"sqlite", "sqlite:a.db"}, side{"sqlite", "sqlite:a.db"}},
		{Where{On: Embedded, Store: "postgres://h/d"}, side{"sqlite", ""}, side{"postgres", "postgres://h/d"}},
		{Where{On: AWS, Store: "postgres://h/d"}, side{"sqs", ""}, side{"postgres", "postgres://h/d"}},
		{Where{On: AWS, Queue: "postgres://h/d"}, side{"postgres", "postgres://h/d"}, side{"dynamodb", ""}},
		{Where{On: AWS, Queue: "sqs://?region=eu-west-1"}, side{"sqs", "sqs://?region=eu-west-1"}, side{"dynamodb", ""}},
		{Where{Queue: "sqs://a", Store: "postgres://h/d"}, side{"sqs", "sqs://a"}, side{"postgres", "postgres://h/d"}},
		{Where{Queue: "postgres://h/d", Store: "dynamodb://abc"}, side{"postgres", "postgres://h/d"}, side{"dynamodb", "dynamodb://abc"}},
	} {
		queue, store, err := c.where.sides()
		if err != nil || queue != c.queue || store != c.store {
			t.Errorf("%+v: %+v and %+v, %v", c.where, queue, store, err)
		}
	}
}

// TestWhereRefuses: each of these is an error of one line, with a hint.
func TestWhereRefuses(t *testing.T) {
	for _, c := range []struct {
		where     Where
		says, try string
	}{
		{Where{On: "postgress"}, `--on "postgress" is unknown (known: embedded, postgres, aws)`, "--on postgres"},
		{Where{On: "local"}, `--on "local" is unknown`, "--on aws, or --queue and --store"},
		{Where{On: AWS, Queue: "sqs://a", Store: "dynamodb://abc"}, "--on aws is for what has no URL", "leave one of the three"},
		{Where{Queue: "sqs://a"}, "--store is needed with --queue sqs://a: SQS keeps no records", "--on aws"},
		{Where{Store: "dynamodb://abc"}, "--queue is needed with --store dynamodb://abc: DynamoDB has no queues", "--on aws"},
		{Where{Queue: "dynamodb://abc"}, "DynamoDB has no queues", "sqs://"},
		{Where{Store: "sqs://a"}, "SQS keeps no records", "dynamodb://"},
		{Where{Store: "memory://"}, "memory:// ends with its process", "--on embedded"},
		{Where{Store: "oracle://h/d"}, `unknown URL scheme "oracle"`, "sqlite:"},
		{Where{Queue: "kafka://h?queue=orders", Store: "sqlite:lab.db"}, "the lab has no place on kafka", "--on embedded"},
		{Where{On: AWS, Store: "dynamodb://abc?pk=id"}, "--store: pk= describes a queue, stream or table that is there", "leave it away"},
		{Where{On: AWS, Queue: "sqs://a.fifo"}, "names a queue, and each run makes a standard queue of its own", "sqs://semel-lab"},
		{Where{On: AWS, Queue: "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"}, "each run makes a standard queue", "sqs://semel-lab"},
		{Where{On: AWS, Queue: "sqs://user:secret@a"}, "credentials do not belong into a URL", "AWS_PROFILE"},
	} {
		err := c.where.Check()
		if err == nil {
			t.Errorf("%+v is taken", c.where)
			continue
		}
		e := output.As(err)
		if e.Code != output.CodeUsage || !strings.Contains(e.Error(), c.says) || !strings.Contains(e.Hint, c.try) || strings.Contains(e.Error(), "secret") {
			t.Errorf("%+v: %v (try: %s)", c.where, e, e.Hint)
		}
	}
}

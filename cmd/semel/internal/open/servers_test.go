package open

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/adapters/rabbitmq"
)

// TestNoQueueHintIsACommand: the hint of a queue that does not exist has the URL that makes this queue, and no password.
func TestNoQueueHintIsACommand(t *testing.T) {
	for _, raw := range []string{
		"kafka://a:1,b?queue=orders&partitions=6&session=2s", "kafka://it's:hunter2@h?queue=o&group=it's&tls=on&tls_ca=/etc/a b.pem",
		"nats://h?queue=ORDERS&wait=1s&consumer=c", "nats://u:hunter2@[::1]?queue=O&replicas=3&monitor=http://x:hunter2@h:8222",
		"amqp://h?queue=orders", "amqp://guest:hunter2@h?queue=orders", "amqps://shop:hunter2@a,b:1/a%2Fb?queue=o&type=classic",
	} {
		was, err := Parse("queue", raw)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case was.kafka != nil:
			err = kafkaError(was, "open", fmt.Errorf("%w; Try: Create", kafka.ErrNotFound))
		case was.nats != nil:
			err = natsError(was, "open", fmt.Errorf("%w; Try: Create", nats.ErrNotFound))
		default:
			err = rabbitError(was, "open", fmt.Errorf("%w; Try: Create", rabbitmq.ErrNotFound))
		}
		hint := hintOf(err)
		words := strings.Split(hint, "'")
		if len(words) != 3 || words[0] != "make it with semel queue create --queue " || strings.Contains(hint, "hunter2") ||
			strings.Contains(hint, "_PASSWORD") != (strings.Contains(raw, "hunter2@") && !strings.Contains(raw, "guest")) {
			t.Errorf("%s: the hint is %q", raw, hint)
			continue
		}
		again, err := Parse("queue", words[1])
		if err != nil {
			t.Errorf("%s: %s: %v", raw, words[1], err)
			continue
		}
		s1, s2 := was.servers(), again.servers()
		s1.password, s2.password = "", ""
		s1.params.Del("monitor")
		if !reflect.DeepEqual(s1, s2) || was.Shown != again.Shown {
			t.Errorf("%s: the command makes %s", raw, words[1])
		}
	}
}

func (t Target) servers() *servers {
	switch {
	case t.kafka != nil:
		return &t.kafka.servers
	case t.nats != nil:
		return &t.nats.servers
	}
	return &t.rabbit.servers
}

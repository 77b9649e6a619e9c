package open

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

func TestParseRabbitMQ(t *testing.T) {
	for raw, want := range map[string]struct {
		shown, user, password, vhost, queue string
		hosts                               []string
	}{
		"amqp://127.0.0.1?queue=orders":             {"amqp://127.0.0.1:5672?queue=orders", "guest", "guest", "/", "orders", []string{"127.0.0.1:5672"}},
		"amqp://h/?queue=o":                         {"amqp://h:5672?queue=o", "guest", "guest", "/", "o", []string{"h:5672"}},
		"amqp://h/%2F?queue=o":                      {"amqp://h:5672?queue=o", "guest", "guest", "/", "o", []string{"h:5672"}},
		"amqps://shop:s3cret@a:1,b,[::1]/v?queue=o": {"amqps://a:1,b:5671,[::1]:5671/v?queue=o", "shop", "s3cret", "v", "o", []string{"a:1", "b:5671", "[::1]:5671"}},
		"amqp://shop:p%40%2F@h/a%2Fb?queue=o":       {"amqp://h:5672/a%2Fb?queue=o", "shop", "p@/", "a/b", "o", []string{"h:5672"}},
		"amqp://h?prefetch=5&type=classic":          {"amqp://h:5672", "guest", "guest", "/", "", []string{"h:5672"}},
	} {
		got, err := Parse("queue", raw)
		if err != nil || got.rabbit == nil || got.Shown != want.shown || got.rabbit.user != want.user || got.rabbit.password != want.password ||
			got.rabbit.vhost != want.vhost || got.Queue != want.queue || !slices.Equal(got.rabbit.hosts, want.hosts) {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	got, err := Parse("queue", "amqp://shop:s3cret@h?queue=o&management=h:15672")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := got.rabbit.options("queue"); err != nil || o.Management != "http://shop:s3cret@h:15672" {
		t.Errorf("management is %q, %v", o.Management, err)
	}
}

func TestParseRabbitMQ_Refuses(t *testing.T) {
	for raw, want := range map[string]string{
		"amqp:h":                                 "is not a URL of the form",
		"amqp://h/a/b?queue=o":                   "is not a URL of the form",
		"amqp://h/%zz?queue=o":                   "is not a URL of the form",
		"amqp://h?queue=":                        "queue must be given once",
		"amqp://h?queue=a&queue=b":               "queue must be given once",
		"amqp://h?prefetc=5":                     "did you mean prefetch?",
		"amqp://h?prefetch=0":                    "prefetch=0 is out of range",
		"amqp://h?prefetch=70000":                "prefetch=70000 is out of range",
		"amqp://h?prefetch=many":                 "prefetch=many is out of range",
		"amqp://h?wait=1h":                       "wait=1h is out of range",
		"amqp://h?consumer_timeout=1s":           "consumer_timeout=1s is out of range",
		"amqp://h?type=stream":                   "type=stream is unknown",
		"amqp://h?management=http://u:hunter2@h": "management= is no URL",
		"amqp://u:hunter2@h/x/y":                 "is not a URL of the form",
		"amqp://u:hun/ter2@h?queue=a":            "is not a URL of the form",
		"amqp://u:hunter2@h?queue=%zz":           "its query cannot be read",
		"amqp://u:hunter2@h:p?queue=a":           "is not a URL of the form",
		"amqp://u:hunter2@h?queue=a&password=x":  "unknown query parameter",
		"amqp://u:hunter2@h#x?queue=a":           "is not a URL of the form",
	} {
		got, err := Parse("queue", raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		for _, text := range []string{fmt.Sprint(err), Redact(raw), output.Redact(raw), fmt.Sprintf("%+v", got)} {
			if strings.Contains(text, "ter2") {
				t.Errorf("%s: a password is shown: %s", raw, text)
			}
		}
	}
	for raw, want := range map[string]string{
		"amqp://h?queue=a&tls_ca=x":              "are for amqps://",
		"amqps://h?queue=a&tls_ca=/nobody":       "no such file",
		"amqps://h?queue=a&tls_cert=/nobody":     "tls_cert= and tls_key=",
		"amqp://u:hunter2@127.0.0.1:1/v?queue=a": "it cannot be reached",
	} {
		set := New(Options{})
		_, err := set.Queue(t.Context(), raw)
		if e := (*output.Error)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || e.Hint == "" && !strings.Contains(want, "amqps") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		_ = set.Close()
	}
}

func TestRabbitMQFacts(t *testing.T) {
	sound := rabbitmq.Settings{Version: "4.1.0", Type: "quorum", Durable: true, Managed: true, Members: []string{"a", "b", "c"}}
	if got := rabbitFacts("orders", &sound, 200); len(got) != 1 || got[0].Level != ops.LevelOK {
		t.Errorf("a sound queue: %+v", got)
	}
	for name, c := range map[string]struct {
		change             func(s *rabbitmq.Settings, prefetch *int)
		level, check, says string
	}{
		"policies unseen": {func(s *rabbitmq.Settings, _ *int) { s.Managed = false }, ops.LevelWarning, "policies", "delivery limit"},
		"auto-ack":        {func(s *rabbitmq.Settings, _ *int) { s.AutoAck = 2 }, ops.LevelDanger, "consumers", "2 consumers"},
		"one node":        {func(s *rabbitmq.Settings, _ *int) { s.Members = []string{"rabbit@a"} }, ops.LevelWarning, "members", "rabbit@a"},
		"prefetch":        {func(_ *rabbitmq.Settings, prefetch *int) { *prefetch = 1001 }, ops.LevelWarning, "prefetch", "1001"},
	} {
		s, prefetch := sound, 200
		c.change(&s, &prefetch)
		got := rabbitFacts("orders", &s, prefetch)
		if len(got) != 2 || got[1].Level != c.level || got[1].Check != c.check || !strings.Contains(got[1].Detail, c.says) || got[1].Try == "" {
			t.Errorf("%s: %+v", name, got[1:])
		}
	}
}

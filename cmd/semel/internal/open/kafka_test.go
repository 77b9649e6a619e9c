package open

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

func TestParseKafka(t *testing.T) {
	for raw, want := range map[string]struct {
		shown, user, password, queue string
		hosts                        []string
	}{
		"kafka://127.0.0.1?queue=orders":              {"kafka://127.0.0.1:9092?queue=orders", "", "", "orders", []string{"127.0.0.1:9092"}},
		"kafka://shop:p%40%2F@a:1,b,[::1]:2/?queue=o": {"kafka://a:1,b:9092,[::1]:2?queue=o", "shop", "p@/", "o", []string{"a:1", "b:9092", "[::1]:2"}},
		"kafka://h?group=g&window=500&session=10s":    {"kafka://h:9092", "", "", "", []string{"h:9092"}},
	} {
		got, err := Parse("queue", raw)
		if err != nil || got.kafka == nil || got.Shown != want.shown || got.kafka.user != want.user || got.kafka.password != want.password ||
			got.Queue != want.queue || !slices.Equal(got.kafka.hosts, want.hosts) {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
}

func TestParseKafka_Refuses(t *testing.T) {
	for raw, want := range map[string]string{
		"kafka:h":                              "is not a URL of the form kafka://",
		"kafka://h/topic":                      "is not a URL of the form",
		"kafka://h?queue=a&queue=b":            "queue must be given once",
		"kafka://h?groop=a":                    "did you mean group?",
		"kafka://h?window=0":                   "window=0 is out of range",
		"kafka://h?window=many":                "window=many is out of range",
		"kafka://h?session=45":                 "session=45 is out of range",
		"kafka://h?session=1ms":                "session=1ms is out of range",
		"kafka://h?protocol=share":             "protocol=share is unknown",
		"kafka://h?replicas=99":                "replicas=99 is out of range",
		"kafka://h?tls=maybe":                  "tls=maybe is unknown",
		"kafka://u:hunter2@h?sasl=gssapi":      "sasl=gssapi is unknown",
		"kafka://u:hunter2@h?password=hunter2": "password is taken from",
		"kafka://u:hun/ter2@h?queue=a":         "is not a URL of the form",
		"kafka://u:hunter2@h:p?queue=a":        "is not a URL of the form",
	} {
		got, err := Parse("queue", raw)
		if err == nil || !strings.Contains(err.Error()+hintOf(err), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		for _, text := range []string{fmt.Sprint(err), Redact(raw), output.Redact(raw), fmt.Sprintf("%+v", got)} {
			if strings.Contains(text, "ter2") {
				t.Errorf("%s: a password is shown: %s", raw, text)
			}
		}
	}
}

func hintOf(err error) string {
	if e := (*output.Error)(nil); errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

func TestKafkaFacts(t *testing.T) {
	sound := func() *kafkaQueue {
		return &kafkaQueue{
			topic: "orders", group: "semel-orders", partitions: 12, replicas: 3, offsetsKept: 7 * 24 * time.Hour,
			config: map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"},
		}
	}
	if got := sound().facts(); len(got) != 1 || got[0].Level != ops.LevelOK {
		t.Errorf("a sound topic: %+v", got)
	}
	for name, c := range map[string]struct {
		set                 map[string]string
		change              func(q *kafkaQueue)
		level, check, wants string
	}{
		"compacted":    {set: map[string]string{"cleanup.policy": "compact,delete"}, level: ops.LevelDanger, check: "cleanup", wants: "dropped unread"},
		"short":        {set: map[string]string{"retention.ms": "3600000"}, level: ops.LevelWarning, check: "retention", wants: "within 1h"},
		"bytes":        {set: map[string]string{"retention.bytes": "1073741824"}, level: ops.LevelWarning, check: "retention", wants: "1073741824 bytes"},
		"offsets":      {change: func(q *kafkaQueue) { q.offsetsKept = 24 * time.Hour }, level: ops.LevelWarning, check: "offsets", wants: "after 1d"},
		"other member": {change: func(q *kafkaQueue) { q.members = []string{"semel", "sarama"} }, level: ops.LevelWarning, check: "group", wants: `"sarama"`},
		"one":          {change: func(q *kafkaQueue) { q.partitions = 1 }, level: ops.LevelOK, check: "partitions", wants: "one worker receives"},
		"forbidden":    {change: func(q *kafkaQueue) { q.config = nil }, level: ops.LevelWarning, check: "topic", wants: "cannot be read"},
	} {
		q := sound()
		if maps.Copy(q.config, c.set); c.change != nil {
			c.change(q)
		}
		got := q.facts()
		if len(got) != 2 || got[1].Level != c.level || got[1].Check != c.check || !strings.Contains(got[1].Detail, c.wants) {
			t.Errorf("%s: %+v", name, got)
		}
		if c.level != ops.LevelOK && got[1].Try == "" {
			t.Errorf("%s: no fix is named", name)
		}
	}
}

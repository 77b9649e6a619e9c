package open

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

func TestParseNATS(t *testing.T) {
	for raw, want := range map[string]struct {
		shown, user, password, queue string
		hosts                        []string
	}{
		"nats://127.0.0.1?queue=ORDERS":             {"nats://127.0.0.1:4222?queue=ORDERS", "", "", "ORDERS", []string{"127.0.0.1:4222"}},
		"nats://shop:s3cret@a:1,b,[::1]:2/?queue=O": {"nats://a:1,b:4222,[::1]:2?queue=O", "shop", "s3cret", "O", []string{"a:1", "b:4222", "[::1]:2"}},
		"nats://shop:p%40%2F@h?queue=O&wait=1s":     {"nats://h:4222?queue=O", "shop", "p@/", "O", []string{"h:4222"}},
		"nats://?queue=O":                           {"nats://127.0.0.1:4222?queue=O", "", "", "O", []string{"127.0.0.1:4222"}},
		"nats://h?sync=always&consumer=c1":          {"nats://h:4222", "", "", "", []string{"h:4222"}},
	} {
		got, err := Parse("queue", raw)
		if err != nil || got.nats == nil || got.Shown != want.shown || got.nats.user != want.user || got.nats.password != want.password ||
			got.Queue != want.queue || !slices.Equal(got.nats.hosts, want.hosts) {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
}

func TestParseNATS_Refuses(t *testing.T) {
	for raw, want := range map[string]string{
		"nats:h":                       "is not a URL of the form",
		"nats://h/STREAM":              "is not a URL of the form",
		"nats://h?queue=":              "queue must be given once",
		"nats://h?queue=a&queue=b":     "queue must be given once",
		"nats://h?consumr=a":           "did you mean consumer?",
		"nats://h?wait=1h":             "wait=1h is out of range",
		"nats://h?wait=soon":           "wait=soon is out of range",
		"nats://h?sync=maybe":          "sync=maybe is unknown",
		"nats://h?max_deliver=5":       "max_deliver=5 is unknown",
		"nats://u:hunter2@h/x":         "is not a URL of the form",
		"nats://u:hun/ter2@h?queue=a":  "is not a URL of the form",
		"nats://u:hunter2@h?queue=%zz": "its query cannot be read",
		"nats://u:hunter2@h:p?queue=a": "is not a URL of the form",
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
	if got := Redact("nats://u:hunter2@h:4222,h2?queue=a"); strings.Contains(got, "hunter2") || !strings.Contains(got, "queue=a") {
		t.Errorf("redacted: %s", got)
	}
}

func TestNATSFacts(t *testing.T) {
	sound := func() *natsQueue {
		return &natsQueue{
			stream: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "ORDERS", Retention: jetstream.WorkQueuePolicy,
				Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, Replicas: 3, Duplicates: time.Minute}},
			consumer: &jetstream.ConsumerInfo{Name: "semel", Config: jetstream.ConsumerConfig{AckWait: 30 * time.Second, MaxDeliver: -1,
				MaxAckPending: 100_000}},
			version: "2.15.2", rtt: time.Millisecond, visibility: 30 * time.Second,
		}
	}
	if got := sound().facts(); len(got) != 1 || got[0].Level != ops.LevelOK {
		t.Errorf("a sound stream: %+v", got)
	}
	for name, c := range map[string]struct {
		change             func(q *natsQueue)
		level, check, says string
	}{
		"max msgs":     {func(q *natsQueue) { q.stream.Config.Discard, q.stream.Config.MaxMsgs = jetstream.DiscardOld, 9 }, ops.LevelDanger, "discard", "max_msgs 9"},
		"max bytes":    {func(q *natsQueue) { q.stream.Config.Discard, q.stream.Config.MaxBytes = jetstream.DiscardOld, 9 }, ops.LevelDanger, "discard", "max_bytes 9"},
		"max age":      {func(q *natsQueue) { q.stream.Config.MaxAge = time.Hour }, ops.LevelWarning, "max age", "within 1h"},
		"max deliver":  {func(q *natsQueue) { q.consumer.Config.MaxDeliver = 5 }, ops.LevelDanger, "max deliver", "5 times"},
		"few pending":  {func(q *natsQueue) { q.consumer.Config.MaxAckPending = 1000 }, ops.LevelWarning, "ack pending", "1000"},
		"ack wait":     {func(q *natsQueue) { q.visibility = time.Minute }, ops.LevelDanger, "ack wait", "1m"},
		"far away":     {func(q *natsQueue) { q.rtt = 11 * time.Second }, ops.LevelWarning, "ack wait", "three round trips"},
		"backoff":      {func(q *natsQueue) { q.consumer.Config.BackOff = []time.Duration{1} }, ops.LevelWarning, "backoff", "replaces AckWait"},
		"inactive":     {func(q *natsQueue) { q.consumer.Config.InactiveThreshold = time.Hour }, ops.LevelWarning, "consumer", "deletes the consumer"},
		"memory":       {func(q *natsQueue) { q.consumer.Config.MemoryStorage = true }, ops.LevelDanger, "consumer", "in memory"},
		"two replicas": {func(q *natsQueue) { q.stream.Config.Replicas = 2 }, ops.LevelWarning, "replicas", "no more failures than 1"},
		"old":          {func(q *natsQueue) { q.version = "2.9.10" }, ops.LevelWarning, "server", "2.9.10"},
	} {
		q := sound()
		c.change(q)
		got := q.facts()
		if len(got) != 2 || got[1].Level != c.level || got[1].Check != c.check || !strings.Contains(got[1].Detail, c.says) || got[1].Try == "" {
			t.Errorf("%s: %+v", name, got[1:])
		}
	}
}

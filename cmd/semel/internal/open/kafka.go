package open

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

const kafkaForm = "kafka://user@host:9092?queue=orders"

var kafkaKind = &kind{
	schemes: []string{"kafka"}, parse: parseKafka, open: openKafka, explain: kafkaError, namesQueue: true, form: kafkaForm,
	noRecords: "the adapter of Kafka keeps no records", create: createKafka,
}

var kafkaParams = []string{
	"queue", "group", "window", "session", "instance", "protocol", "partitions", "replicas", "sasl", "tls", "tls_ca", "tls_cert", "tls_key",
}

// kafkaPlace is what a URL of Kafka says.
type kafkaPlace struct{ servers }

// parseKafka reads kafka://user:password@host:9092,host2?queue=TOPIC.
func parseKafka(flag, raw string, t *Target) error {
	servers, err := parseServers(flag, raw, kafkaForm, "9092", "")
	if err != nil {
		return err
	}
	p := &kafkaPlace{servers}
	if err := checkParams(flag, p.params, kafkaParams, "the password is taken from the URL or KAFKA_PASSWORD"); err != nil {
		return err
	}
	if err := t.setQueue(flag, p.params["queue"]); err != nil {
		return err
	}
	if _, err := p.options(flag); err != nil {
		return err
	}
	t.kafka, t.place = p, "kafka "+strings.Join(p.hosts, ",")+" "+p.user+" "+p.params.Encode()
	t.Shown = "kafka://" + strings.Join(p.hosts, ",")
	if t.Queue != "" {
		t.Shown += "?queue=" + t.Queue
	}
	return nil
}

// count reads a parameter that is a number from 1 to most; 0 if it is absent.
func (p *kafkaPlace) count(flag, name string, most int) (int, error) {
	raw := p.params.Get(name)
	n, err := strconv.Atoi(raw)
	if raw != "" && (err != nil || n < 1 || n > most) {
		return 0, output.Usage("--%s: %s=%s is out of range", flag, name, raw).WithHint("%s= takes 1 to %d", name, most)
	}
	return n, nil
}

// options are the adapter's. Files are read when the client is made.
func (p *kafkaPlace) options(flag string) (o kafka.CreateOptions, err error) {
	o.Group = p.params.Get("group")
	for name, c := range map[string]struct {
		to   *int
		most int
	}{"window": {&o.Window, 1_000_000}, "partitions": {&o.Partitions, 10_000}, "replicas": {&o.Replicas, 15}} {
		if *c.to, err = p.count(flag, name, c.most); err != nil {
			return o, err
		}
	}
	o.Client = []kgo.Opt{kgo.SeedBrokers(p.hosts...)}
	if raw := p.params.Get("session"); raw != "" {
		d, err := time.ParseDuration(raw)
		if err != nil || d < time.Second || d > 30*time.Minute {
			return o, output.Usage("--%s: session=%s is out of range", flag, raw).WithHint("session=45s: a duration from 1s to 30m")
		}
		o.Client = append(o.Client, kgo.SessionTimeout(d), kgo.HeartbeatInterval(min(d/6, 3*time.Second)))
	}
	if name := p.params.Get("instance"); name != "" {
		o.Client = append(o.Client, kgo.InstanceID(name))
	}
	switch raw := p.params.Get("protocol"); raw {
	case "", "classic":
	case "consumer":
		o.Client = append(o.Client, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	default:
		return o, output.Usage("--%s: protocol=%s is unknown", flag, raw).WithHint("protocol=classic, or protocol=consumer (KIP-848, Kafka 4)")
	}
	if user := cmp.Or(p.user, os.Getenv("KAFKA_USER")); user != "" {
		password := cmp.Or(p.password, os.Getenv("KAFKA_PASSWORD"))
		switch raw := p.params.Get("sasl"); raw {
		case "", "scram-sha-512":
			o.Client = append(o.Client, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
		case "scram-sha-256":
			o.Client = append(o.Client, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
		case "plain":
			o.Client = append(o.Client, kgo.SASL(saslplain.Auth{User: user, Pass: password}.AsMechanism()))
		default:
			return o, output.Usage("--%s: sasl=%s is unknown", flag, raw).WithHint("sasl=plain, scram-sha-256 or scram-sha-512")
		}
	}
	if raw := p.params.Get("tls"); raw != "" && !slices.Contains([]string{"on", "off"}, raw) {
		return o, output.Usage("--%s: tls=%s is unknown", flag, raw).WithHint("tls=on or tls=off")
	}
	return o, nil
}

// load are the options with the files of TLS.
func (p *kafkaPlace) load(t Target) (o kafka.CreateOptions, err error) {
	if o, err = p.options("queue"); err != nil {
		return o, err
	}
	if p.params.Get("tls") != "on" {
		if p.hasTLS() {
			return o, output.Usage("%s: tls_ca=, tls_cert= and tls_key= need tls=on", t.Shown)
		}
		return o, nil
	}
	c, err := p.tlsConfig()
	if err != nil {
		return o, output.Usage("%s: %w", t.Shown, err).WithHint("tls_ca=, tls_cert= and tls_key= name files in PEM")
	}
	o.Client = append(o.Client, kgo.DialTLSConfig(c))
	return o, nil
}

// kafkaDB is the topics of a cluster.
type kafkaDB struct {
	noRecords
	o      kafka.CreateOptions
	queues []*kafka.Queue
}

func openKafka(_ context.Context, t Target, _ Options) (Database, error) {
	o, err := t.kafka.load(t)
	return &kafkaDB{noRecords: noRecords{t}, o: o}, err
}

// Queue opens a topic, which has to exist.
func (d *kafkaDB) Queue(ctx context.Context, name string, _ time.Duration) (driver.Queue, error) {
	o := d.o.Options
	if d.t.Queue != "" && name != d.t.Queue {
		o.Group = "" // that of the URL belongs to its topic
	}
	q, err := kafka.Open(ctx, name, o)
	if err != nil {
		return nil, kafkaError(d.t, "open", err)
	}
	d.queues = append(d.queues, q)
	return q, nil
}

func createKafka(ctx context.Context, t Target, how NewQueue) error {
	if how.MaxReceives != 0 || how.Visibility != 0 {
		return output.Usage("--max-receives and --default-visibility are nothing for Kafka: it counts no deliveries and hides no message").
			WithHint("leave them away: semel work --max-attempts counts attempts")
	}
	o, err := t.kafka.load(t)
	if err != nil {
		return err
	}
	o.Retention = how.Retention
	if err := kafka.Create(ctx, t.Queue, o); err != nil {
		return kafkaError(t, "create", err)
	}
	return nil
}

// Queues lists the topics of the cluster that are not internal.
func (d *kafkaDB) Queues(ctx context.Context) ([]string, error) {
	var names []string
	err := d.ask(ctx, "list the topics of", func(ctx context.Context, admin *kadm.Client) error {
		topics, err := admin.ListTopics(ctx)
		for _, t := range topics.Sorted() {
			names = append(names, t.Topic)
		}
		return err
	})
	sort.Strings(names)
	return names, err
}

// ask calls f with a client for administration.
func (d *kafkaDB) ask(ctx context.Context, doing string, f func(ctx context.Context, admin *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	c, err := kgo.NewClient(d.o.Client...)
	if err != nil {
		return kafkaError(d.t, doing, err)
	}
	defer c.Close()
	if err := f(ctx, kadm.NewClient(c)); err != nil {
		return kafkaError(d.t, doing, err)
	}
	return nil
}

func (d *kafkaDB) Close() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}

// kafkaError says why a topic could not be used, and what to do about it.
func kafkaError(t Target, doing string, err error) error {
	return t.unreachable(doing, "kafka", err,
		meaning{errors.Is(err, kafka.ErrNotFound), "", t.kafka.servers.createHint(t, "KAFKA_PASSWORD"), ErrNoQueue},
		meaning{errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.IllegalSaslState) ||
			errors.Is(err, kerr.UnsupportedSaslMechanism), "the broker refuses the credentials: ",
			"check the user of the URL with KAFKA_PASSWORD, and sasl=", nil},
		meaning{refused(err), "it cannot be reached: ", "check that a broker listens there, host and port of the URL, and tls= and sasl=", nil})
}

// RemoveKafka deletes the topic of a URL. What is not there is no error.
func RemoveKafka(ctx context.Context, raw string) error {
	t, err := Parse("queue", raw)
	if err != nil {
		return err
	}
	d := &kafkaDB{noRecords: noRecords{t}}
	if d.o, err = t.kafka.load(t); err != nil {
		return err
	}
	return d.ask(ctx, "delete", func(ctx context.Context, admin *kadm.Client) error {
		if _, err := admin.DeleteTopic(ctx, t.Queue); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		return nil
	})
}

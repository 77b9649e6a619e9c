package place

import (
	"net/url"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// The values of Where.On.
const (
	// Embedded is SQLite files in a temporary folder.
	Embedded = "embedded"
	// Postgres is the database that PGHOST, PGDATABASE and their like name.
	Postgres = "postgres"
	// AWS is SQS and DynamoDB as fakes on a socket of the loopback interface.
	AWS = "aws"
)

// Ons are all values of Where.On.
func Ons() []string { return []string{Embedded, Postgres, AWS} }

// Where says where scenarios run. The zero value is SQLite files in a temporary folder.
type Where struct {
	// On is what is used where no URL is given: one of Ons. Defaults to Embedded; with one URL of a database that has both
	// queues and records, to that database.
	On string
	// Queue and Store are URLs of places in which each run makes a queue, a table, a schema or a file of its own, and removes
	// it. What they name there is never touched: it is the beginning of the names of what is made.
	Queue, Store string
}

// Check refuses what cannot be used, before anything is made. Errors are of usage.
func (w Where) Check() error {
	_, _, err := w.sides()
	return err
}

// side is one half of a pair: where the queues or the records of all runs are.
type side struct {
	scheme string
	// url is the place's; "" is the run's own folder, or the fakes.
	url string
}

// fake reports whether the side is one of the lab's own fakes.
func (s side) fake() bool { return s.url == "" && (s.scheme == "sqs" || s.scheme == "dynamodb") }

// sides finds out what the two halves are.
func (w Where) sides() (queue, store side, err error) {
	if w.On != "" && !slices.Contains(Ons(), w.On) {
		e := output.Usage("--on %q is unknown (known: %s)", w.On, strings.Join(Ons(), ", "))
		if near := nearest.Name(w.On, Ons(), 4); near != "" {
			return queue, store, e.WithHint("--on %s", near)
		}
		return queue, store, e.WithHint("--on aws, or --queue and --store with the URLs of a place")
	}
	if w.On != "" && w.Queue != "" && w.Store != "" {
		return queue, store, output.Usage("--on %s is for what has no URL, and --queue and --store are both given", w.On).
			WithHint("leave one of the three away")
	}
	if w.Queue != "" {
		if queue, err = sideOf("queue", w.Queue); err != nil {
			return queue, store, err
		}
	}
	if w.Store != "" {
		if store, err = sideOf("store", w.Store); err != nil {
			return queue, store, err
		}
	}
	err = w.fill(&queue, &store)
	return queue, store, err
}

// fill sets the sides for which no URL is given.
func (w Where) fill(queue, store *side) error {
	on := w.On
	if on == "" && (w.Queue != "") != (w.Store != "") {
		switch {
		case queue.scheme == "sqs":
			return output.Usage("--store is needed with --queue %s: SQS keeps no records", open.Redact(w.Queue)).
				WithHint("--store 'dynamodb://semel-lab', --store postgres://… or --on aws")
		case queue.scheme == "nats":
			return output.Usage("--store is needed with --queue %s: the adapter of NATS keeps no records", open.Redact(w.Queue)).
				WithHint("--store postgres://… or --on embedded")
		case queue.scheme == "amqp":
			return output.Usage("--store is needed with --queue %s: the adapter of RabbitMQ keeps no records", open.Redact(w.Queue)).
				WithHint("--store postgres://… or --on embedded")
		case store.scheme == "dynamodb":
			return output.Usage("--queue is needed with --store %s: DynamoDB has no queues", open.Redact(w.Store)).
				WithHint("--queue 'sqs://semel-lab', --queue postgres://… or --on aws")
		case w.Queue != "":
			*store = *queue
		default:
			*queue = *store
		}
		return nil
	}
	otherwise := map[string][2]side{
		"": {{"sqlite", ""}, {"sqlite", ""}}, Embedded: {{"sqlite", ""}, {"sqlite", ""}},
		Postgres: {{"postgres", "postgres:///"}, {"postgres", "postgres:///"}}, AWS: {{"sqs", ""}, {"dynamodb", ""}},
	}[on]
	if w.Queue == "" {
		*queue = otherwise[0]
	}
	if w.Store == "" {
		*store = otherwise[1]
	}
	return nil
}

// sideOf reads a URL.
func sideOf(flag, raw string) (side, error) {
	t, err := open.Parse(flag, raw)
	if err != nil {
		return side{}, err
	}
	if t.Ephemeral() {
		return side{}, output.Usage("--%s %s ends with its process, and the lab has several", flag, raw).WithHint("--on embedded")
	}
	if flag == "queue" {
		err = t.HasQueues(flag)
	} else {
		err = t.HasRecords()
	}
	if err != nil {
		return side{}, err
	}
	if t.Scheme == "mysql" || t.Scheme == "kafka" {
		return side{}, output.Usage("--%s %s: the lab has no place on %s", flag, open.Redact(raw), t.Scheme).WithHint("--on embedded, or --on postgres")
	}
	if t.Scheme == "sqs" || t.Scheme == "dynamodb" {
		return side{t.Scheme, raw}, plainAWS(flag, raw)
	}
	if t.Scheme == "nats" {
		return side{t.Scheme, raw}, plainNATS(flag, raw)
	}
	return side{t.Scheme, raw}, nil
}

// plainAWS refuses what a URL of AWS says about a queue or table that is not going to be used.
func plainAWS(flag, raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return output.Usage("--%s is not a URL", flag)
	}
	if strings.HasPrefix(u.Scheme, "http") || strings.HasSuffix(u.Host, ".fifo") {
		return output.Usage("--%s %s names a queue, and each run makes a standard queue of its own", flag, raw).
			WithHint("--%s 'sqs://semel-lab?region=eu-west-1': the name begins those of the runs' queues", flag)
	}
	for name := range u.Query() {
		if !slices.Contains(sharedParams, name) {
			return output.Usage("--%s: %s= describes a queue or table that is there, and each run makes its own", flag, name).
				WithHint("leave it away; known here: %s", strings.Join(sharedParams, ", "))
		}
	}
	return nil
}

// sharedParams are the parameters of a URL of AWS that say where the queues and tables of runs are.
var sharedParams = []string{"region", "endpoint", "profile"}

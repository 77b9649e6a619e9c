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

// URLs is where one run happens. It travels to the worker processes as JSON.
type URLs struct {
	// Queue and Store are the URLs of the run's own queue and records, as every command takes them. They may hold a password.
	Queue string `json:"queue"`
	Store string `json:"store"`
	// Fakes is the endpoint of the lab's own SQS and DynamoDB, "" where there are none: no credentials are looked for there.
	Fakes string `json:"fakes,omitempty"`
}

// File is the place that has everything in one SQLite file. path is absolute.
func File(path string) URLs {
	store := (&url.URL{Scheme: "sqlite", Path: path}).String()
	return URLs{Queue: withQueue(store), Store: store}
}

// Shown is the place for people: no password.
func (p URLs) Shown() URLs {
	return URLs{Queue: open.Redact(p.Queue), Store: open.Redact(p.Store), Fakes: p.Fakes}
}

// withQueue adds the queue's name to a URL, whatever its kind.
func withQueue(raw string) string {
	sep := "?"
	if strings.Contains(raw, "?") {
		sep = "&"
	}
	return raw + sep + "queue=" + QueueName
}

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
		if w.Store == "" {
			return otherSide(store, *queue, "store", "queue", w.Queue)
		}
		return otherSide(queue, *store, "queue", "store", w.Store)
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

// otherSide sets the side of a pair that is not given to the one that is, if that has both queues and records.
func otherSide(other *side, is side, flag, given, raw string) error {
	if why := half[is.scheme]; why != "" {
		return output.Usage("--%s is needed with --%s %s: %s", flag, given, open.Redact(raw), why).
			WithHint("--%s postgres://…, --on embedded or --on aws", flag)
	}
	*other = is
	return nil
}

// half says why a place is only one half of a pair.
var half = map[string]string{
	"sqs": "SQS keeps no records", "nats": "the adapter of NATS keeps no records", "amqp": "the adapter of RabbitMQ keeps no records",
	"dynamodb": "DynamoDB has no queues",
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
	if err == nil && t.Scheme == "kafka" {
		err = output.Usage("--%s %s: the lab has no place on %s", flag, open.Redact(raw), t.Scheme).WithHint("--on embedded, or --on postgres")
	}
	if err != nil {
		return side{}, err
	}
	return side{t.Scheme, raw}, notOurs(flag, t.Scheme, raw)
}

// notOurs refuses what a URL says about a queue, stream or table that is not going to be used.
func notOurs(flag, scheme, raw string) error {
	before, query, _ := strings.Cut(raw, "?")
	if scheme == "sqs" && (strings.HasPrefix(before, "http") || strings.HasSuffix(before, ".fifo")) {
		return output.Usage("--%s %s names a queue, and each run makes a standard queue of its own", flag, raw).
			WithHint("--%s 'sqs://semel-lab?region=eu-west-1': the name begins those of the runs' queues", flag)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return output.Usage("--%s is not a URL", flag)
	}
	for name := range q {
		if (scheme == "sqs" || scheme == "dynamodb") && !slices.Contains(sharedParams, name) ||
			scheme == "nats" && slices.Contains([]string{"consumer", "subject", "max_deliver"}, name) {
			return output.Usage("--%s: %s= describes a queue, stream or table that is there, and each run makes its own", flag, name).
				WithHint("leave it away")
		}
	}
	return nil
}

// sharedParams are the parameters of a URL of AWS that say where the queues and tables of runs are.
var sharedParams = []string{"region", "endpoint", "profile"}

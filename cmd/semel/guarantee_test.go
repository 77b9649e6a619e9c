package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest/server"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/guarantees.md")

// TestGuarantees builds every combination of queue, store and handler with the real adapters, asks semel what it
// guarantees, and compares the results with the tables of docs/guarantees.md.
//
//	go test ./cmd/semel -run TestGuarantees -update
func TestGuarantees(t *testing.T) {
	compareTable(t, "guarantees", "guarantees", "TestGuarantees", guarantees(t, places(t)))
}

// compareTable compares a part of a page in docs, which a test makes, with want; -update writes it.
func compareTable(t *testing.T, name, part, test, want string) {
	t.Helper()
	page, begin, end := "../../docs/"+name+".md", "<!-- "+part+": made by "+test+" -->\n", "<!-- end of "+part+" -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	is, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s does not have both marks %q and %q", page, begin, end)
	}
	if is == want {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s differs from what semel prints; run this test with -update, and read the difference. Want:\n%s", page, want)
}

// place is an open database, of which some kinds have two, so that a queue and a store can be apart. One of a service that
// is only the one or the other has nil for what it is not.
type place struct {
	kind  string
	queue driver.Queue
	store driver.Store
}

func places(t *testing.T) []place {
	t.Helper()
	ctx := t.Context()
	m := memory.Open()
	all := []place{{"memory", m.Queue("orders"), m.Store()}}
	for i := range 2 {
		db, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), fmt.Sprint(i)), sqlite.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		all = append(all, place{"SQLite", db.Queue("orders"), db.Store()})
	}
	for i := range 3 {
		url, kind := server.Database(t), "PostgreSQL"
		if i == 2 {
			url, kind = withQuery(url)+"&synchronous_commit=off", unsafePostgres
		}
		db, err := postgres.Open(ctx, url, postgres.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		all = append(all, place{kind, db.Queue("orders"), db.Store()})
	}
	return slices.Concat(all, mysqlPlaces(t), awsPlaces(t), natsPlaces(t), rabbitPlaces(t), kafkaPlaces(t), redisPlaces(t))
}

// mysqlPlaces are databases of servers of their own.
func mysqlPlaces(t *testing.T) (all []place) {
	t.Helper()
	server.Need(t, "mysql")
	for _, kind := range []string{"MariaDB or MySQL", unsafeMySQL} {
		settings := map[string]string{}
		if kind == unsafeMySQL {
			settings["innodb_flush_log_at_trx_commit"] = "2"
		}
		srv, err := server.MySQL(t.Context(), server.Options{Settings: settings})
		if err != nil {
			server.LeaveOut(t, "mysql", err.Error())
		}
		db, err := mysql.Open(t.Context(), mysqltest.Database(t, srv.URL()), mysql.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(db.Close(), srv.Close()); err != nil {
				t.Error(err)
			}
		})
		all = append(all, place{kind, db.Queue("orders"), db.Store()})
	}
	return all
}

// natsPlaces are streams of a server that syncs what it acknowledges, and of one that may not.
func natsPlaces(t *testing.T) (all []place) {
	t.Helper()
	nc, err := natsclient.Connect(server.Shared(t, "nats"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{safeNATS, unsafeNATS} {
		stream, o := fmt.Sprintf("SEMEL_GUARANTEES_%d_%d", os.Getpid(), i), nats.Options{SyncAlways: kind == safeNATS}
		if err := nats.Create(t.Context(), nc, stream, nats.CreateOptions{Options: o}); err != nil {
			t.Fatal(err)
		}
		q, err := nats.Open(t.Context(), nc, stream, o)
		if err := errors.Join(err, js.DeleteStream(t.Context(), stream)); err != nil {
			t.Fatal(err)
		}
		all = append(all, place{kind, deadletter.With(q, memory.NewQueue(stream)), nil})
	}
	return all
}

// rabbitPlaces is a quorum queue. Its dead letters are kept with the records, so it is shown with stores that can.
func rabbitPlaces(t *testing.T) []place {
	t.Helper()
	url := server.Shared(t, "rabbitmq")
	dial := func() (*amqp.Connection, error) { return amqp.Dial(url) }
	name := fmt.Sprintf("semel-guarantees-%d", os.Getpid())
	if err := rabbitmq.Create(t.Context(), dial, name, rabbitmq.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q, err := rabbitmq.Open(t.Context(), dial, name, rabbitmq.Options{})
	if err := errors.Join(err, rabbitmq.Delete(t.Context(), dial, name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return []place{{quorum, deadletter.With(q, memory.NewQueue("dead letters")), nil}}
}

// kafkaPlaces are a topic that two brokers confirm, and one that a single broker confirms.
func kafkaPlaces(t *testing.T) (all []place) {
	t.Helper()
	o := kafka.Options{Client: kafkatest.Client(kafkatest.Start(t))}
	for replicas, kind := range map[int]string{3: safeKafka, 1: unsafeKafka} {
		topic := fmt.Sprint("orders-", replicas)
		if err := kafka.Create(t.Context(), topic, kafka.CreateOptions{Options: o, Partitions: 1, Replicas: replicas}); err != nil {
			t.Fatal(err)
		}
		q, err := kafka.Open(t.Context(), topic, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		all = append(all, place{kind, deadletter.With(q, memory.NewQueue(topic)), nil})
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(b.kind, a.kind) })
	return all
}

// redisPlaces are servers of their own, and of the one that may lose something its records alone.
func redisPlaces(t *testing.T) (all []place) {
	t.Helper()
	server.Need(t, "redis")
	for kind, fsync := range map[string]string{safeRedis: "always", unsafeRedis: "everysec"} {
		srv, err := server.Redis(t.Context(), server.Options{Settings: map[string]string{"appendfsync": fsync}})
		if err != nil {
			t.Fatal(err)
		}
		client := goredis.NewClient(&goredis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() {
			if err := errors.Join(client.Close(), srv.Close()); err != nil {
				t.Error(err)
			}
		})
		s, err := redis.Open(t.Context(), client, redis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, place{kind, redisQueue(t, s, kind), s})
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.kind, b.kind) })
	return all
}

func redisQueue(t *testing.T, s *redis.Store, kind string) driver.Queue {
	t.Helper()
	if kind == unsafeRedis {
		return nil
	}
	if err := s.CreateQueue(t.Context(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	q, err := s.Queue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// awsPlaces are a queue without records and records without a queue, on fakes of the services.
func awsPlaces(t *testing.T) []place {
	t.Helper()
	client := awssqs.NewFromConfig(awstest.Config(fakesqs.New(fakesqs.Options{})))
	if _, err := sqs.Create(t.Context(), client, "orders", sqs.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q, err := sqs.Open(t.Context(), client, "orders", sqs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tables := awsdynamodb.NewFromConfig(awstest.Config(fakedynamodb.New(fakedynamodb.Options{})))
	if err := dynamodb.Create(t.Context(), tables, "records", dynamodb.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := dynamodb.Open(t.Context(), tables, "records", dynamodb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return []place{{"SQS", q, nil}, {"DynamoDB", nil, s}}
}

// handlers are the ways to have an effect, in the words of the table. Those with one name must have the same guarantee.
var handlers = []struct {
	name string
	with func(*semel.Config)
}{
	{"any handler, `--exec`, `--http`; policy `resume`", func(c *semel.Config) { c.Handler = nothing }},
	{"the same, policy `probe`", func(c *semel.Config) {
		c.Handler, c.Takeover = nothing, semel.Probe
		c.Probe = func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeUnknown, nil }
	}},
	{"the same, policy `once`", func(c *semel.Config) { c.Handler, c.Takeover = nothing, semel.Once }},
	{"queued SQL: `InTx` with `*semel.Statements`, `--effects sql`", func(c *semel.Config) {
		c.Handler = semel.InTx(func(context.Context, *semel.Statements, *semel.Attempt) error { return nil })
	}},
	{"the same, `ClaimAtCommit`, `--claim at-commit`", func(c *semel.Config) {
		c.ClaimAtCommit = true
		c.Handler = semel.InTx(func(context.Context, *semel.Statements, *semel.Attempt) error { return nil })
	}},
	{"queued items: `InTx` with `*dynamodb.Writes`", func(c *semel.Config) {
		c.Handler = semel.InTx(func(context.Context, *dynamodb.Writes, *semel.Attempt) error { return nil })
	}},
	{openTx, func(c *semel.Config) {
		c.Handler = semel.InTx(func(context.Context, *sql.Tx, *semel.Attempt) error { return nil })
	}},
	{openTx, func(c *semel.Config) {
		c.Handler = semel.InTx(func(context.Context, pgx.Tx, *semel.Attempt) error { return nil })
	}},
	{openTx, func(c *semel.Config) {
		c.Handler = semel.InTx(func(context.Context, *memory.Tx, *semel.Attempt) error { return nil })
	}},
	{wholeBatch, func(c *semel.Config) {
		c.Handler = semel.InTxBatch(func(context.Context, *semel.Statements, []*semel.Attempt) error { return nil })
	}},
	{wholeBatch, func(c *semel.Config) {
		c.Handler = semel.InTxBatch(func(context.Context, pgx.Tx, []*semel.Attempt) error { return nil })
	}},
	{wholeBatch, func(c *semel.Config) {
		c.Handler = semel.InTxBatch(func(context.Context, *sql.Tx, []*semel.Attempt) error { return nil })
	}},
}

const (
	openTx     = "SQL in the open transaction: `InTx` with `*sql.Tx`, `pgx.Tx`"
	wholeBatch = "SQL for a whole batch: `InTxBatch` with any of these"
)

var nothing = semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })

// handlerPart is the part of a guarantee that depends on the handler: it must be the same wherever queue and records are.
type handlerPart struct{ mode, effects, lead string }

// kept is the part of a guarantee that depends on the place: it must be the same for every handler.
type kept struct{ together, lasts string }

// guarantees makes the two tables whose product is every combination. It fails where a guarantee is no such product.
func guarantees(t *testing.T, all []place) string {
	t.Helper()
	byHandler, byPlace, effects := map[string]handlerPart{}, map[string]kept{}, map[string]bool{}
	var names, labels []string
	for _, h := range handlers {
		for i, q := range all {
			for j, s := range all {
				if q.queue == nil || s.store == nil {
					continue
				}
				label := placeLabel(q.kind, s.kind, i == j)
				cfg := semel.Config{Queue: q.queue, Store: s.store}
				if h.with(&cfg); cfg.ClaimAtCommit && !q.queue.Features().Counts {
					continue // New refuses it
				}
				p, err := semel.Guarantee(cfg)
				if errors.Is(err, semel.ErrNoTx) || label == "" {
					continue
				}
				if err != nil {
					t.Fatalf("%s, %s: %v", h.name, label, err)
				}
				record := slices.Index(p.Together, "record")
				here := handlerPart{p.Mode, p.Effects, strings.Join(p.Together[:record], ", ")}
				there := kept{strings.Join(p.Together[record:], ", "), lasts(p, q.queue.Features().Caveats, s.store.Features().Caveats)}
				if was, ok := byHandler[h.name]; !ok {
					names = append(names, h.name)
				} else if was != here {
					t.Errorf("%s, %s: the guarantee is %+v, elsewhere %+v", h.name, label, here, was)
				}
				if was, ok := byPlace[label]; !ok {
					labels = append(labels, label)
				} else if was != there {
					t.Errorf("%s, %s: kept is %+v, for other handlers %+v", label, h.name, there, was)
				}
				byHandler[h.name], byPlace[label] = here, there
				effects[label] = effects[label] || here.lead != ""
			}
		}
	}
	for label, k := range byPlace {
		if effects[label] {
			byPlace[label] = kept{"the handler's SQL or items, " + k.together, k.lasts}
		}
	}
	var b strings.Builder
	b.WriteString("| handler | mode | guarantee |\n|---|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, byHandler[name].mode, byHandler[name].effects)
	}
	b.WriteString("\n| queue and records in | commits in one write | kept |\n|---|---|---|\n")
	for _, same := range grouped(labels, byPlace) {
		k := byPlace[same[0]]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(same, "; "), k.together, k.lasts)
	}
	return b.String()
}

// lasts says how long what was committed stays: the caveats of queue and records are among the assumptions.
func lasts(p semel.Guarantees, caveats ...[]string) string {
	if p.Durable {
		return "when processes and servers die"
	}
	all := slices.DeleteFunc(p.Assumptions, func(a string) bool { return !slices.Contains(slices.Concat(caveats...), a) })
	if len(all) > 0 {
		return "not for certain: " + strings.Join(all, "; ")
	}
	return "until the process ends: for development"
}

// grouped groups places with the same guarantee.
func grouped(labels []string, by map[string]kept) (out [][]string) {
	for _, label := range labels {
		i := slices.IndexFunc(out, func(g []string) bool { return by[g[0]] == by[label] })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], label)
	}
	return out
}

// The kinds of servers that can lose what they confirmed, and of those that cannot.
const (
	unsafePostgres = "PostgreSQL, commits not waited for"
	unsafeMySQL    = "MariaDB or MySQL, commits not synced"
	unsafeNATS     = "NATS with its default `sync_interval`"
	unsafeKafka    = "Kafka with one replica"
	unsafeRedis    = "Redis with `appendfsync everysec`"
	safeNATS       = "NATS with `sync_interval: always`"
	quorum         = "RabbitMQ with a quorum queue"
	safeKafka      = "Kafka with `min.insync.replicas` 2"
	safeRedis      = "Redis with `appendfsync always`"
)

// placeLabel names a pair; "" = one that nobody wants, memory beside a database, or two of which one can lose something
// except on PostgreSQL.
func placeLabel(queue, store string, same bool) string {
	one := map[string]string{
		"memory": "memory", "SQLite": "one SQLite file", "PostgreSQL": "one PostgreSQL database",
		safeRedis: "one Redis with `appendfsync always`", unsafePostgres: "one PostgreSQL database with `synchronous_commit = off`",
		"MariaDB or MySQL": "one MariaDB or MySQL database", unsafeMySQL: "one MariaDB or MySQL database with `innodb_flush_log_at_trx_commit = 2`",
	}
	two := map[string]string{"SQLite": "two SQLite files", "PostgreSQL": "two PostgreSQL databases"}
	single := []string{"memory", unsafePostgres, unsafeMySQL, "MariaDB or MySQL"} // pairs with other places are as those of PostgreSQL
	switch {
	case same:
		return one[queue]
	case slices.Contains(single, queue) || slices.Contains(single, store):
		return ""
	case (queue == unsafeNATS || queue == unsafeKafka) && store != "PostgreSQL" || store == unsafeRedis && queue != "PostgreSQL":
		return ""
	case queue == quorum && store != "PostgreSQL" && store != "SQLite":
		return ""
	case queue == store:
		return two[queue]
	}
	return queue + " and " + store
}

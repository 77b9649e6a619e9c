package realinput

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

// service is one that has a queue, records, or both.
type service struct {
	name string
	// open makes what a run needs of it, and returns its URL, in which the queue is "hooks". A service that has queues and
	// records gives both at one URL.
	open func(t *testing.T) string
	// queue and records: it has them.
	queue, records bool
	// create are the flags of the command that makes the queue; nil: none is needed.
	create []string
	// database opens the tables that the handler's SQL writes; nil: it has none.
	database func(t *testing.T, url string) *sql.DB
	// version is that of the server at a URL.
	version func(t *testing.T, url string) string
}

var services = []service{
	{name: "SQLite", open: openSQLite, queue: true, records: true, database: databaseSQLite,
		version: versionBy("SELECT sqlite_version()", databaseSQLite)},
	{name: "PostgreSQL", open: openPostgres, queue: true, records: true, database: databasePostgres,
		version: versionBy("SHOW server_version", databasePostgres)},
	{name: "MariaDB", open: openMySQL, queue: true, records: true, database: databaseMySQL, version: versionBy("SELECT version()", databaseMySQL)},
	{name: "Redis", open: openRedis, queue: true, records: true, create: []string{"--default-visibility", "4s"}, version: versionRedis},
	{name: "NATS JetStream", open: openNATS, queue: true, create: []string{"--default-visibility", "4s"}, version: versionNATS},
	{name: "RabbitMQ", open: openRabbitMQ, queue: true, create: []string{}, version: versionRabbitMQ},
	{name: "Kafka", open: openKafka, queue: true, create: []string{}, version: fake},
	{name: "Amazon SQS", open: openSQS, queue: true, create: []string{}, version: fake},
	{name: "DynamoDB", open: openDynamoDB, records: true, version: fake},
}

// pair is what a run of one queue with one store showed: a line of docs/pairs.jsonl.
type pair struct {
	Queue        string   `json:"queue"`
	Store        string   `json:"store"`
	QueueVersion string   `json:"queue_version"`
	StoreVersion string   `json:"store_version"`
	Together     []string `json:"together"` // in one write: semel doctor's words
	Effects      string   `json:"effects"`  // "sql" or "key"
	Payloads     int      `json:"payloads"`
	Messages     int      `json:"messages"`
	Once         int      `json:"once"` // payloads with one effect
	Kills        int      `json:"kills"`
}

// TestPairs sends every payload three times, in shuffled order, through each queue onto each store: three workers, of which
// one is killed. Every payload has one effect, and none is lost. Effects are SQL where the store takes it, and otherwise
// files named by the effect key. Every run takes each queue and each store once; make pairs takes all, and writes the file that
// SEMEL_PAIRS names.
func TestPairs(t *testing.T) {
	lines, results := payloads(t), os.Getenv(envPairs)
	whole := results != "" || semeltest.Nightly()
	var lasting []pair
	queues := slices.DeleteFunc(slices.Clone(services), func(s service) bool { return !s.queue })
	stores := slices.DeleteFunc(slices.Clone(services), func(s service) bool { return !s.records })
	for i, q := range queues {
		for j, s := range stores {
			if !whole && i%len(stores) != j {
				continue
			}
			t.Run(q.name+" onto "+s.name, func(t *testing.T) {
				p := runPair(t, q, s, lines)
				if !t.Failed() {
					lasting = append(lasting, p)
				}
			})
		}
	}
	if results != "" && !t.Failed() {
		var b bytes.Buffer
		for _, p := range lasting {
			if err := json.NewEncoder(&b).Encode(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(results, b.Bytes(), 0o644); err != nil { //nolint:gosec // a page of the docs
			t.Fatal(err)
		}
	}
}

func runPair(t *testing.T, q, s service, lines []string) pair {
	queue := q.open(t)
	if q.create != nil {
		command(t, append([]string{"queue", "create", "--queue", queue}, q.create...)...)
	}
	store := queue
	if q.name != s.name {
		store = withoutQueue(s.open(t)) // else records ls shows the records of its own queue
	}
	f := newFixtureOn(t, lines, func(string) string { return queue }, store)
	p := pair{Queue: q.name, Store: s.name, Effects: "key", Payloads: len(lines), Messages: 3 * len(lines), Kills: 1,
		QueueVersion: q.version(t, queue), StoreVersion: s.version(t, store)}
	if s.database == nil {
		f.work(f.keyed(), f.files)
		f.once()
		p.Once = f.files()
	} else {
		p.Effects = "sql"
		p.Once = f.statements(s.database(t, store))
	}
	f.settled()
	var found struct {
		Guarantees struct{ Together []string }
	}
	args := []string{"doctor", "--queue", queue, "--store", store, "--key", "body", "--exec", "true", "-o", "json", "--visibility", "4s"}
	if p.Effects == "sql" {
		args = append(args, "--effects", "sql")
	}
	doctor := exec.Command(f.semel, args...)
	var stderr bytes.Buffer
	doctor.Stderr = &stderr
	out, err := doctor.Output() // its exit code is that of its findings
	if jerr := json.Unmarshal(out, &found); jerr != nil || len(found.Guarantees.Together) == 0 {
		t.Fatalf("semel doctor: %v, %v: %s%s", err, jerr, out, &stderr)
	}
	p.Together = found.Guarantees.Together
	return p
}

// statements works with a handler that prints its effect as SQL, and returns how many payloads have exactly one.
func (s *fixture) statements(db *sql.DB) int {
	s.t.Helper()
	if _, err := db.Exec(`CREATE TABLE effects (effect VARCHAR(200) NOT NULL, worker INT NOT NULL)`); err != nil {
		s.t.Fatal(err)
	}
	count := func(what string) (n int) {
		if err := db.QueryRow("SELECT count(" + what + ") FROM effects").Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	h := s.script(`cat > /dev/null
printf '{"insert":"effects","row":{"effect":"%s","worker":%d}}\n' "$SEMEL_EFFECT_KEY" $PPID
`)
	s.work(h, func() int { return count("*") }, "--effects", "sql")
	n, keys := count("*"), count("DISTINCT effect")
	if n != s.distinct || keys != s.distinct {
		s.t.Errorf("%d effects of %d keys, of %d payloads", n, keys, s.distinct)
	}
	return keys
}

// command runs semel to make what a service needs.
func command(t *testing.T, args ...string) {
	t.Helper()
	semel, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(semel, args...).CombinedOutput(); err != nil {
		t.Fatalf("semel %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// with adds a parameter to a URL.
func with(url, parameter string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameter
	}
	return url + "?" + parameter
}

func withoutQueue(url string) string {
	return strings.NewReplacer("&queue=hooks", "", "?queue=hooks", "").Replace(url)
}

func openSQLite(t *testing.T) string {
	return "sqlite://" + filepath.Join(t.TempDir(), "hooks.db") + "?queue=hooks"
}

func openPostgres(t *testing.T) string {
	url := with(server.Database(t), "queue=hooks")
	command(t, "migrate", "--store", url)
	return url
}

func openMySQL(t *testing.T) string {
	url := with(mysqltest.Database(t, server.Shared(t, "mysql")), "queue=hooks")
	command(t, "migrate", "--store", url)
	return url
}

func openNATS(t *testing.T) string {
	return fmt.Sprintf("%s?queue=HOOKS_%d&wait=1s", server.Shared(t, "nats"), time.Now().UnixNano())
}

func openRabbitMQ(t *testing.T) string {
	at, name := server.Shared(t, "rabbitmq"), fmt.Sprintf("hooks-%d", time.Now().UnixNano())
	t.Cleanup(func() {
		dial := func() (*amqp.Connection, error) { return amqp.Dial(at) }
		if err := rabbitmq.Delete(context.Background(), dial, name); err != nil {
			t.Error(err)
		}
	})
	return at + "?wait=1s&queue=" + name
}

func openKafka(t *testing.T) string {
	return "kafka://" + kfake.Start(t).Brokers()[0] + "?queue=hooks&session=4s&partitions=6"
}

func openSQS(t *testing.T) string {
	srv := httptest.NewServer(fakesqs.New(fakesqs.Options{}))
	t.Cleanup(srv.Close)
	credentials(t)
	return "sqs://hooks?region=us-east-1&wait=1s&endpoint=" + srv.URL
}

func openDynamoDB(t *testing.T) string {
	srv := httptest.NewServer(fakedynamodb.New(fakedynamodb.Options{}))
	t.Cleanup(srv.Close)
	credentials(t)
	url := "dynamodb://hooks?region=us-east-1&endpoint=" + srv.URL
	command(t, "migrate", "--store", url)
	return url
}

// credentials are those that the SDK wants, which the fakes do not look at.
func credentials(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		t.Setenv(name, value)
	}
}

func openRedis(t *testing.T) string {
	return server.Own(t, "redis", nil).URL() + "?prefix=hooks&queue=hooks"
}

func databaseSQLite(t *testing.T, url string) *sql.DB {
	path, _, _ := strings.Cut(strings.TrimPrefix(url, "sqlite://"), "?")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db.SQL()
}

func databasePostgres(t *testing.T, url string) *sql.DB {
	cfg, err := pgx.ParseConfig(withoutQueue(url))
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func databaseMySQL(t *testing.T, url string) *sql.DB {
	db, err := mysqltest.Connect(withoutQueue(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func versionBy(query string, open func(*testing.T, string) *sql.DB) func(*testing.T, string) string {
	return func(t *testing.T, url string) (version string) {
		if err := open(t, url).QueryRow(query).Scan(&version); err != nil {
			t.Fatal(err)
		}
		version, _, _ = strings.Cut(version, " ")
		version, _, _ = strings.Cut(version, "-")
		return version
	}
}

func versionNATS(t *testing.T, url string) string {
	_, info, _ := strings.Cut(first(t, url, ""), "INFO ")
	var found struct{ Version string }
	if err := json.Unmarshal([]byte(info), &found); err != nil {
		t.Fatal(err)
	}
	return found.Version
}

func versionRabbitMQ(t *testing.T, url string) string {
	c, err := amqp.Dial(withoutQuery(url))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version, _ := c.Properties["version"].(string)
	return version
}

func withoutQuery(url string) string {
	at, _, _ := strings.Cut(url, "?")
	return at
}

func versionRedis(t *testing.T, url string) string {
	info := first(t, url, "INFO server\r\n")
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version)
		}
	}
	t.Fatalf("no version in %q", info)
	return ""
}

// first is the beginning of what the server at a URL sends after a command.
func first(t *testing.T, at, command string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, command); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func fake(*testing.T, string) string { return "(a fake)" }

package realinput

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestStatementEffect_NATSOntoPostgres: the payloads come through a stream of NATS, effects and records go to PostgreSQL. Besides
// a worker the NATS server is killed, and started again on its data.
func TestStatementEffect_NATSOntoPostgres(t *testing.T) {
	lines := payloads(t)
	if !semeltest.Nightly() {
		lines = lines[:100]
	}
	server.Need(t, "nats")
	stream, err := server.NATS(t.Context(), server.Options{})
	if err != nil {
		server.LeaveOut(t, "nats", err.Error())
	}
	t.Cleanup(func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	})
	statementEffect(t, lines, stream.URL()+"?queue=HOOKS&wait=1s", func() {
		if err := stream.Kill(); err != nil {
			t.Error(err)
		}
		if err := stream.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}, "--default-visibility", "2s")
}

// TestStatementEffect_RabbitMQOntoPostgres: the same with a quorum queue on the server of this machine, which is not killed.
func TestStatementEffect_RabbitMQOntoPostgres(t *testing.T) {
	lines := payloads(t)
	if !semeltest.Nightly() {
		lines = lines[:100]
	}
	url := server.Shared(t, "rabbitmq")
	name := fmt.Sprintf("semel-realinput-%d", os.Getpid())
	t.Cleanup(func() {
		dial := func() (*amqp.Connection, error) { return amqp.Dial(url) }
		if err := rabbitmq.Delete(context.Background(), dial, name); err != nil {
			t.Error(err)
		}
	})
	statementEffect(t, lines, url+"?wait=1s&queue="+name, nil)
}

// statementEffect sends the payloads through a queue. Effects and records go to PostgreSQL.
func statementEffect(t *testing.T, lines []string, queue string, strike func(), create ...string) {
	store := server.Database(t)
	db, err := pgx.Connect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(t.Context()) })
	if _, err := db.Exec(t.Context(), `CREATE TABLE effects (key text NOT NULL, worker int NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	count := func(what string) (n int) {
		if err := db.QueryRow(t.Context(), "SELECT count("+what+") FROM effects").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	semel, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(semel, append([]string{"queue", "create", "--queue", queue}, create...)...).CombinedOutput(); err != nil {
		t.Fatalf("make the queue: %v: %s", err, out)
	}
	s := newFixtureOn(t, lines, func(string) string { return queue }, store)
	s.run("migrate", "--store", store)
	s.strike = strike
	h := s.script(`cat > /dev/null
printf '{"sql":"INSERT INTO effects (key, worker) VALUES ($1, $2)","args":["%s",%d],"rows":1}\n' "$SEMEL_EFFECT_KEY" $PPID
`)
	s.work(h, func() int { return count("*") }, "--effects", "sql")
	s.settled()
	if n, keys := count("*"), count("DISTINCT key"); n != s.distinct || keys != s.distinct {
		t.Errorf("%d effects of %d keys, of %d payloads", n, keys, s.distinct)
	}
}

package realinput

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

// TestStatementEffect_NATSOntoPostgres: the payloads come through a stream of NATS, effects and records go to PostgreSQL. Besides
// a worker the NATS server is killed, and started again on its data.
func TestStatementEffect_NATSOntoPostgres(t *testing.T) {
	stream := server.Own(t, "nats", nil)
	ontoPostgres(t, stream.URL()+"?queue=HOOKS&wait=1s", []string{"--default-visibility", "4s"}, func() { server.Restart(t, stream) })
}

// TestStatementEffect_KafkaOntoPostgres is the same with a topic of a fake broker.
func TestStatementEffect_KafkaOntoPostgres(t *testing.T) {
	broker := kfake.Start(t)
	ontoPostgres(t, "kafka://"+broker.Brokers()[0]+"?queue=hooks&session=4s&partitions=6", nil, func() {
		if err := errors.Join(broker.Kill(), broker.Start(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// ontoPostgres makes a queue, and has its payloads handled while strike kills its server.
func ontoPostgres(t *testing.T, queue string, create []string, strike func()) {
	lines := payloads(t)
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
	args := append([]string{"queue", "create", "--queue", queue}, create...)
	if out, err := exec.Command(semel, args...).CombinedOutput(); err != nil {
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

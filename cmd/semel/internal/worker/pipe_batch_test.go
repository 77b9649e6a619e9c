//go:build unix

package worker

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// Without effects a line is an array of what waits; the process may write the results one by one, and a failure is its own
// message's.
func TestPipeArrays(t *testing.T) {
	msgs := make([]semel.Message, 40)
	msgs[7] = says(script{Write: `{"id":$ID,"outcome":"dead"}`})
	got, db := run(t, pipe(t, func(p *Pipe) { p.Batch = 8 }).Handler(), nil, msgs...)
	if got.Effects != 39 || got.Dead != 1 || got.Executed != 40 {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// A process that dies with an array loses all of it; then the messages run alone, and only the one that kills it fails.
func TestFM83_PipeArrayDies(t *testing.T) {
	msgs := make([]semel.Message, 12)
	msgs[3] = says(script{Exit: 7, Write: "\n"})
	got, db := run(t, pipe(t, func(p *Pipe) { p.Batch = 8 }).Handler(), func(c *semel.Config) { c.MaxAttempts = 3 }, msgs...)
	if got.Effects != 11 || got.Dead != 1 {
		t.Errorf("got %+v: %s", got, reasons(t, db))
	}
}

// inserts makes messages whose rows commit with their records; some do something else.
func inserts(n int, others map[int]script) []semel.Message {
	msgs := make([]semel.Message, n)
	for i := range msgs {
		s, ok := others[i]
		if !ok {
			s.Write = fmt.Sprintf(`{"id":$ID,"outcome":"done","effects":[{"insert":"t","row":{"n":%d}}]}`, i)
		}
		msgs[i] = says(s)
	}
	return msgs
}

// With --effects sql rows commit with the records, of each message or of a whole array. Failures are their own messages', also
// of one that kills the process, and leave no doubt.
func TestFM60_PipeEffects(t *testing.T) {
	for name, batch := range map[string]int{"single": 0, "array": 8} {
		t.Run(name, func(t *testing.T) {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			sql, err := db.SQL().QueryContext(t.Context(), "CREATE TABLE t (n INTEGER PRIMARY KEY)")
			if err != nil {
				t.Fatal(err)
			}
			_ = sql.Close()
			p := pipe(t, func(p *Pipe) { p.Batch, p.Processes = batch, 2 })
			h := p.Statements()
			if batch > 0 {
				h = p.BatchStatements()
			}
			got := runOn(t, db.Queue("q"), db.Store(), h, func(c *semel.Config) { c.Batch, c.Takeover = 8, semel.Once }, inserts(40, map[int]script{
				3:  {Write: `{"id":$ID,"outcome":"dead"}`},
				5:  {Exit: 7, Write: "\n"},
				11: {Write: `{"id":$ID,"outcome":"done","effects":[{"insert":"t","row":{"n":10}}]}`}, // it is there
				20: {Exit: 7, Write: "\n", Once: true},
			})...)
			if got.Effects != 37 || got.Dead != 3 || got.Uncertain != 0 {
				t.Errorf("got %+v", got)
			}
			var rows, sum int
			if err := db.SQL().QueryRowContext(t.Context(), "SELECT count(*), sum(n) FROM t").Scan(&rows, &sum); err != nil {
				t.Fatal(err)
			}
			if want := 40*39/2 - 3 - 5 - 11 - 20; rows != 36 || sum != want {
				t.Errorf("%d rows, sum %d, want 36, %d", rows, sum, want)
			}
		})
	}
}

package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// shop is the world of these tests: one SQLite file, fresh for every schedule, in which account 1 has a balance.
type shop struct {
	t    *testing.T
	path string
	n    int
}

func (s *shop) reset() {
	s.n++
	s.path = filepath.Join(s.t.TempDir(), fmt.Sprintf("shop-%d.db", s.n))
	db := s.open()
	defer db.Close()
	if _, err := db.SQL().Exec(`CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (1, 0)`); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) open() *sqlite.DB {
	db, err := sqlite.Open(context.Background(), s.path, sqlite.Options{Create: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return db
}

func (s *shop) state() any {
	db := s.open()
	defer db.Close()
	var balance int
	if err := db.SQL().QueryRow(`SELECT balance FROM account WHERE id = 1`).Scan(&balance); err != nil {
		s.t.Fatal(err)
	}
	return balance
}

const deposit = `UPDATE account SET balance = balance + 5 WHERE id = 1`

// verified runs all schedules of a handler on SQLite; handler gets the program's own handle of the same file, too.
func verified(t *testing.T, state bool, handler func(own *sql.DB) semel.Handler) *verify.Report {
	s := &shop{t: t}
	o := verify.Options{
		Messages: []semel.Message{{ID: "order-1", Body: []byte(`{"order":1}`)}},
		Reset:    s.reset,
		Limit:    5 * time.Minute, // no handler hangs
		Worker: func(p *verify.Process) semel.Config {
			db := s.open()
			p.OnEnd(func() { db.Close() })
			own := p.DB("sqlite", s.path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
			return semel.Config{
				Queue: db.Queue("orders"), Store: db.Store(), Key: key.FromJSON("/order"), Handler: handler(own),
			}
		},
	}
	if state {
		o.State = s.state
	}
	r, err := verify.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	return r
}

func causes(r *verify.Report) []verify.Cause {
	var cs []verify.Cause
	for i := range r.Findings {
		cs = append(cs, r.Findings[i].Cause)
	}
	return cs
}

// Effects that commit with the record pass, whatever goes wrong; the same SQL outside of its transaction does not.
func TestVerifyHandlers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of schedules on files")
	}
	own := func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, deposit); err != nil {
			return err
		}
		return tx.Commit()
	}
	for _, c := range []struct {
		name    string
		handler func(db *sql.DB) semel.Handler
		state   bool
		effects int
		faults  int // bad schedules that strike
		want    []verify.Cause
	}{
		{"queued statements", func(*sql.DB) semel.Handler {
			return semel.InTx(func(_ context.Context, tx *semel.Statements, _ *semel.Attempt) error {
				tx.ExecRows(1, deposit)
				return nil
			})
		}, true, 1, 7, nil},
		{"open transaction", func(*sql.DB) semel.Handler {
			return semel.InTx(func(ctx context.Context, tx *sql.Tx, _ *semel.Attempt) error {
				_, err := tx.ExecContext(ctx, deposit)
				return err
			})
		}, true, 0, 7, nil},
		{"batch", func(*sql.DB) semel.Handler {
			return semel.InTxBatch(func(_ context.Context, tx *semel.Statements, batch []*semel.Attempt) error {
				for range batch {
					tx.Exec(deposit)
				}
				return nil
			})
		}, true, 1, 6, nil},
		{"counter beside the record", func(db *sql.DB) semel.Handler {
			return semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
				_, err := db.ExecContext(ctx, deposit)
				return err
			})
		}, false, 1, 16, []verify.Cause{verify.OutsideTransaction}},
		{"counter, judged by the state", func(db *sql.DB) semel.Handler {
			return semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
				_, err := db.ExecContext(ctx, deposit)
				return err
			})
		}, true, 1, 16, []verify.Cause{verify.OtherState}},
		{"a value that is set, judged by the state", func(db *sql.DB) semel.Handler {
			return semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
				_, err := db.ExecContext(ctx, `UPDATE account SET balance = 5 WHERE id = 1`)
				return err
			})
		}, true, 1, 16, nil},
		{"own transaction", func(db *sql.DB) semel.Handler {
			return semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error { return own(ctx, db) })
		}, false, 2, 18, []verify.Cause{verify.OutsideTransaction}},
		{"own transaction inside of an unkeyed insert", func(db *sql.DB) semel.Handler {
			return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
				_, err := db.ExecContext(ctx, `INSERT INTO account VALUES (2, 5) ON CONFLICT DO NOTHING`)
				return err
			})
		}, false, 1, 16, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := verified(t, c.state, c.handler)
			if got := causes(r); !slices.Equal(got, c.want) {
				t.Errorf("causes %v, want %v", got, c.want)
			}
			if n := len(r.Effects["order-1"]); n != c.effects {
				t.Errorf("%d effects were recorded, want %d", n, c.effects)
			}
			if n := r.Struck(); n != c.faults {
				t.Errorf("%d schedules struck, want %d", n, c.faults)
			}
		})
	}
}

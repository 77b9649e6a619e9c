package verify_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/verify"
)

// ledger is a database with one table, to which every statement that begins with INSERT adds a row. Its driver is of
// the oldest kind: no context, no optional interface. adapters/sqlite tests a modern one.
type ledger struct {
	mu   sync.Mutex
	rows []string
}

func (l *ledger) Connect(context.Context) (sqldriver.Conn, error) { return &ledgerConn{l: l}, nil }
func (l *ledger) Driver() sqldriver.Driver                        { return ledgerDriver{l} }

type ledgerDriver struct{ l *ledger }

func (d ledgerDriver) Open(string) (sqldriver.Conn, error) { return &ledgerConn{l: d.l}, nil }

type ledgerConn struct {
	l      *ledger
	inTx   bool
	staged []string
	closed bool
}

func (c *ledgerConn) Prepare(q string) (sqldriver.Stmt, error) { return &ledgerStmt{c, q}, nil }
func (c *ledgerConn) Close() error                             { c.closed = true; return nil }
func (c *ledgerConn) Begin() (sqldriver.Tx, error)             { c.inTx = true; return c, nil }
func (c *ledgerConn) Rollback() error                          { c.inTx, c.staged = false, nil; return nil }
func (c *ledgerConn) Commit() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.rows = append(c.l.rows, c.staged...)
	c.inTx, c.staged = false, nil
	return nil
}

type ledgerStmt struct {
	c *ledgerConn
	q string
}

func (s *ledgerStmt) Close() error  { return nil }
func (s *ledgerStmt) NumInput() int { return -1 }
func (s *ledgerStmt) Exec([]sqldriver.Value) (sqldriver.Result, error) {
	if !strings.HasPrefix(s.q, "INSERT") {
		return sqldriver.RowsAffected(0), nil
	}
	s.c.staged = append(s.c.staged, s.q)
	if !s.c.inTx {
		return sqldriver.RowsAffected(1), s.c.Commit()
	}
	return sqldriver.RowsAffected(1), nil
}

func (s *ledgerStmt) Query(a []sqldriver.Value) (sqldriver.Rows, error) {
	_, err := s.Exec(a)
	return noRows{}, err
}

type noRows struct{}

func (noRows) Columns() []string              { return []string{"n"} }
func (noRows) Close() error                   { return nil }
func (noRows) Next(d []sqldriver.Value) error { return io.EOF }

func TestSQLOfAnOldDriver(t *testing.T) {
	insert := func(ctx context.Context, db *sql.DB, q string) error {
		_, err := db.ExecContext(ctx, q)
		return err
	}
	for _, c := range []struct {
		name    string
		h       func(ctx context.Context, db *sql.DB) error
		effects string // of the plain run
		struck  int
		want    []verify.Cause
	}{
		{"insert", func(ctx context.Context, db *sql.DB) error { return insert(ctx, db, "INSERT 1") },
			"INSERT 1", 16, []verify.Cause{verify.OutsideTransaction}},
		{"insert by a query", func(ctx context.Context, db *sql.DB) error {
			rows, err := db.QueryContext(ctx, "INSERT 1\n  RETURNING n")
			if err != nil {
				return err
			}
			defer rows.Close()
			return rows.Err()
		}, "INSERT 1 RETURNING n", 16, []verify.Cause{verify.OutsideTransaction}},
		{"nothing changed, and a read", func(ctx context.Context, db *sql.DB) error {
			if err := insert(ctx, db, "UPDATE nothing"); err != nil {
				return err
			}
			rows, err := db.QueryContext(ctx, "SELECT n")
			if err != nil {
				return err
			}
			defer rows.Close()
			return rows.Err()
		}, "", 0, []verify.Cause{verify.NothingRecorded}},
		{"transaction", func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			for _, q := range []string{"INSERT 1", "INSERT 2"} {
				if _, err := tx.ExecContext(ctx, q); err != nil {
					return err
				}
			}
			return tx.Commit()
		}, "INSERT 1, INSERT 2, COMMIT", 2*2 + 9 + 7, []verify.Cause{verify.OutsideTransaction, verify.OutsideTransaction}},
		{"transaction whose second statement may fail", func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "INSERT 1"); err != nil {
				return err
			}
			_, _ = tx.ExecContext(ctx, "INSERT 2")
			return tx.Commit()
		}, "INSERT 1, INSERT 2, COMMIT", 2*2 + 9 + 7,
			[]verify.Cause{verify.OutsideTransaction, verify.OutsideTransaction, verify.LostEffect}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l *ledger
			r := run(t, verify.Options{
				Reset: func() { l = &ledger{} },
				Worker: func(p *verify.Process) semel.Config {
					db := p.Connect(l)
					return semel.Config{
						Key:     key.FromJSON("/order"),
						Handler: semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error { return c.h(ctx, db) }),
					}
				},
			})
			wantCauses(t, r, c.want...)
			var names []string
			for _, e := range r.Effects[order.ID] {
				names = append(names, e.Name)
			}
			if got := strings.Join(names, ", "); got != c.effects || r.Struck() != c.struck {
				t.Errorf("effects %q, %d schedules struck; want %q, %d", got, r.Struck(), c.effects, c.struck)
			}
		})
	}
}

// Effects of a starting process belong to no message.
func TestSQLAtStart(t *testing.T) {
	var l *ledger
	r := run(t, verify.Options{
		Reset: func() { l = &ledger{} },
		Worker: func(p *verify.Process) semel.Config {
			db := p.Connect(l)
			if _, err := db.Exec("INSERT schema"); err != nil {
				t.Error(err)
			}
			return semel.Config{Key: key.FromJSON("/order"), Handler: charge(p.Client(nil))}
		},
	})
	wantCauses(t, r)
	if len(r.Effects[order.ID]) != 2 {
		t.Errorf("effects %+v", r.Effects)
	}
}

func TestDatabaseThatDoesNotOpen(t *testing.T) {
	_, err := verify.Run(t.Context(), verify.Options{
		Messages: []semel.Message{order},
		Worker: func(p *verify.Process) semel.Config {
			p.DB("no such driver", "")
			return semel.Config{Handler: charge(p.Client(nil))}
		},
	})
	if err == nil || !strings.Contains(err.Error(), "no such driver") {
		t.Errorf("error %v", err)
	}
}

var _ sqldriver.Connector = (*ledger)(nil)

// findingsOf is how many findings the schedule of a kind at an effect showed; -1 = it did not run.
func findingsOf(r *verify.Report, k verify.Kind, effect string) int {
	for _, o := range r.Schedules {
		if o.Schedule == k && o.Effect == effect && o.Struck {
			return o.Findings
		}
	}
	return -1
}

// The transaction of a process that dies before its commit, or whose commit is not sent, is rolled back in the database
// itself: the state would tell otherwise. One that dies after it has committed.
func TestDeathRollsBack(t *testing.T) {
	var l *ledger
	r := run(t, verify.Options{
		Reset: func() { l = &ledger{} },
		State: func() any { return len(l.rows) },
		Worker: func(p *verify.Process) semel.Config {
			db := p.Connect(l)
			return semel.Config{
				Key: key.FromJSON("/order"),
				Handler: semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if _, err := tx.ExecContext(ctx, "INSERT 1"); err != nil {
						return err
					}
					return tx.Commit()
				}),
			}
		},
	})
	for k, want := range map[verify.Kind]int{verify.CrashBefore: 0, verify.NotSent: 0, verify.CrashAfter: 1, verify.ResponseLost: 1} {
		if got := findingsOf(r, k, "COMMIT"); got != want {
			t.Errorf("%v: %d findings, want %d", k, got, want)
		}
	}
	if got := findingsOf(r, verify.CrashAfter, "INSERT 1"); got != 0 {
		t.Errorf("a death inside of the transaction: %d findings", got)
	}
}

// A dead process does nothing more, whatever is deferred or runs in another goroutine.
func TestTheDeadDoNothing(t *testing.T) {
	r := run(t, verify.Options{Worker: calls(func(ctx context.Context, c *http.Client, a *semel.Attempt) (err error) {
		defer func() { err = errors.Join(err, post(context.WithoutCancel(ctx), c, mail, "", "")) }()
		return post(ctx, c, bank, a.EffectKey("charge"), "")
	})})
	wantCauses(t, r, verify.NoKey)
	for k, want := range map[verify.Kind]int{verify.CrashBefore: 0, verify.CrashAfter: 0, verify.ResponseLost: 1} {
		if got := findingsOf(r, k, "POST "+bank); got != want {
			t.Errorf("%v: %d findings, want %d", k, got, want)
		}
	}
}

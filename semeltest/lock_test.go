package semeltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	semeldriver "github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

func TestLockSuite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range semeltest.CheckLock(t, func(testing.TB) semeltest.LockSetup {
			db := sql.OpenDB(&guardedRow{})
			t.Cleanup(func() { _ = db.Close() })
			return semeltest.LockSetup{Store: memory.NewStore(), SQL: db}
		}) {
			t.Error(f)
		}
	})
}

// TestLockSuiteFinds plants stores on which locks do not work.
func TestLockSuiteFinds(t *testing.T) {
	for name, bug := range lockBugs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var found []string
				for _, f := range semeltest.CheckLock(t, func(testing.TB) semeltest.LockSetup {
					s := &planted{Store: memory.NewStore()}
					bug.plant(s)
					return semeltest.LockSetup{Store: s}
				}) {
					if strings.Contains(f, bug.want) {
						return
					}
					found = append(found, f)
				}
				t.Errorf("not found; wanted a failure with %q, got %q", bug.want, found)
			})
		})
	}
}

type lockBug struct {
	plant func(s *planted)
	want  string
}

// everybody makes a store grant a held lock to every caller.
func everybody(s *planted) {
	s.claim = func(s *planted, ctx context.Context, c []semeldriver.Claim) ([]semeldriver.Grant, error) {
		g, err := s.Store.Claim(ctx, c...)
		for i := range g {
			if g[i].Verdict == semeldriver.Busy {
				g[i].Verdict = semeldriver.Acquired
			}
		}
		return g, err
	}
}

func lockBugs() map[string]lockBug {
	mine := func(f semeldriver.Finish) bool { return f.Final == semeldriver.Release }
	return map[string]lockBug{
		"a held lock is handed out": {everybody, "S1-44 unlock, and unlock again: while it is held"},
		"unlock by non-owners": {func(s *planted) {
			s.finish = func(s *planted, ctx context.Context, f []semeldriver.Finish) ([]semeldriver.Outcome, error) {
				return s.forged(ctx, f, func(semeldriver.Hold, semeldriver.Hold) bool { return mine(f[0]) })
			}
		}, "FM1 expiry, takeover and the stale holder: after the stale holder"},
		"a refused unlock is an error": {func(s *planted) {
			s.finish = func(s *planted, ctx context.Context, f []semeldriver.Finish) ([]semeldriver.Outcome, error) {
				out, err := s.Store.Finish(ctx, f...)
				if err == nil && out[0] == semeldriver.Lost {
					return nil, errors.New("condition failed")
				}
				return out, err
			}
		}, "FM1 expiry, takeover and the stale holder: unlock:"},
		"extensions are not written": {func(s *planted) {
			s.extend = func(_ *planted, _ context.Context, _ time.Duration, h []semeldriver.Hold) ([]semeldriver.Outcome, error) {
				return make([]semeldriver.Outcome, len(h)), nil // Unknown
			}
		}, "FM9 the heartbeat extends: no lock outlived its lease"},
		"extensions are confirmed, not written": {func(s *planted) {
			s.extend = func(_ *planted, _ context.Context, _ time.Duration, h []semeldriver.Hold) ([]semeldriver.Outcome, error) {
				return []semeldriver.Outcome{semeldriver.Applied}, nil
			}
		}, "FM9 the heartbeat extends: two hold the lock"},
		"extension by the stale holder": {func(s *planted) {
			s.extend = func(s *planted, ctx context.Context, d time.Duration, h []semeldriver.Hold) ([]semeldriver.Outcome, error) {
				return s.Store.Extend(ctx, d, s.current(ctx, h[0].Key))
			}
		}, "FM11 a lock is taken away: extending a lock that was taken away"},
		"leases end early": {func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []semeldriver.Claim) ([]semeldriver.Grant, error) {
				c[0].Lease /= 2
				return s.Store.Claim(ctx, c...)
			}
		}, "FM1 expiry, takeover and the stale holder: two hold the lock"},
		"tokens stand still": {func(s *planted) {
			s.grant = func(_ *planted, _ semeldriver.Claim, g *semeldriver.Grant) { g.Hold.Token = 7 }
			s.finish = func(s *planted, ctx context.Context, f []semeldriver.Finish) ([]semeldriver.Outcome, error) {
				return s.forged(ctx, f, func(semeldriver.Hold, semeldriver.Hold) bool { return true })
			}
		}, "S1-44 one holder at a time: token 7 was handed out after token 7"},
		"an own claim is taken for another's": {func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []semeldriver.Claim) ([]semeldriver.Grant, error) {
				r, ok, err := s.Record(ctx, c[0].Key)
				if err == nil && ok && r.State == semeldriver.InProgress && r.Nonce == c[0].Nonce {
					return []semeldriver.Grant{{Verdict: semeldriver.Busy, Wait: r.Lease, Hold: r.Hold()}}, nil
				}
				return s.Store.Claim(ctx, c...)
			}
		}, "FM31 requests without a response: a free lock"},
		"names are folded": {func(s *planted) {
			s.claim = func(s *planted, ctx context.Context, c []semeldriver.Claim) ([]semeldriver.Grant, error) {
				c[0].Key.Raw = strings.ToLower(c[0].Key.Raw)
				return s.Store.Claim(ctx, c...)
			}
		}, `names that look alike: lock "A" next to the others`},
		"a purge forgets the tokens": {func(s *planted) {
			s.grant = func(s *planted, _ semeldriver.Claim, g *semeldriver.Grant) {
				if g.Verdict == semeldriver.Acquired && g.Attempt == 1 {
					g.Hold.Token = 1
				}
			}
			s.finish = func(s *planted, ctx context.Context, f []semeldriver.Finish) ([]semeldriver.Outcome, error) {
				return s.forged(ctx, f, func(semeldriver.Hold, semeldriver.Hold) bool { return true })
			}
		}, "FM12 tokens survive a purge: token 1 was handed out after token 1"},
	}
}

// guardedRow is a database of one row that knows the statements of the suite: enough to see them refused.
type guardedRow struct {
	value string
	fence int64
}

func (g *guardedRow) Connect(context.Context) (driver.Conn, error) { return g, nil }
func (g *guardedRow) Driver() driver.Driver                        { return nil }
func (g *guardedRow) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not needed") }
func (g *guardedRow) Close() error                                 { return nil }
func (g *guardedRow) Begin() (driver.Tx, error)                    { return g, nil }
func (g *guardedRow) Commit() error                                { return nil }
func (g *guardedRow) Rollback() error                              { return nil }

func (g *guardedRow) ExecContext(_ context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case strings.HasPrefix(q, "CREATE TABLE guarded"), strings.HasPrefix(q, "INSERT INTO guarded"):
		return driver.RowsAffected(0), nil
	case !strings.HasSuffix(q, "WHERE id = $3 AND fence <= $2 AND $2 > 0"):
		return nil, errors.New("no such table")
	}
	fence := args[1].Value.(int64)
	if fence < g.fence {
		return driver.RowsAffected(0), nil
	}
	g.value, g.fence = args[0].Value.(string), fence
	return driver.RowsAffected(1), nil
}

func (g *guardedRow) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &oneRow{values: []driver.Value{g.value, g.fence}}, nil
}

type oneRow struct{ values []driver.Value }

func (r *oneRow) Columns() []string { return []string{"value", "fence"} }
func (r *oneRow) Close() error      { return nil }
func (r *oneRow) Next(dest []driver.Value) error {
	if r.values == nil {
		return io.EOF
	}
	copy(dest, r.values)
	r.values = nil
	return nil
}

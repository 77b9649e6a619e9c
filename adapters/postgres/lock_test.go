package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/semeltest"
)

// TestLockSuite runs locks over a database that is opened twice, as two processes have it; the guarded table is in it too.
func TestLockSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunLock(t, func(t testing.TB) semeltest.LockSetup {
		db := openFor(t, Options{})
		pool := stdlib.OpenDBFromPool(db.Pool())
		t.Cleanup(func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
		return semeltest.LockSetup{Store: db.Store(), Other: openAgain(t, db).Store(), SQL: pool}
	})
}

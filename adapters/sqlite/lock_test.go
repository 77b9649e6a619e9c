package sqlite

import (
	"testing"

	"github.com/semel-dev/semel/semeltest"
)

// TestLockSuite runs locks over a file that is opened twice, as two processes have it; the guarded table is in it too.
func TestLockSuite(t *testing.T) {
	semeltest.RunLock(t, func(t testing.TB) semeltest.LockSetup {
		db := openFor(t, Options{})
		other, err := Open(t.Context(), db.path, Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
		return semeltest.LockSetup{Store: db.Store(), Other: other.Store(), SQL: db.SQL()}
	})
}

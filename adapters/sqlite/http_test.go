package sqlite

import (
	"testing"

	"github.com/semel-dev/semel/edge/http/edgetest"
)

// TestHTTPSuite runs the Idempotency-Key middleware over a file that is opened twice, as two servers have it.
func TestHTTPSuite(t *testing.T) {
	edgetest.Run(t, func(t testing.TB) edgetest.Setup {
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
		return edgetest.Setup{Store: db.Store(), Other: other.Store()}
	})
}

package postgres

import (
	"testing"

	"github.com/semel-dev/semel/edge/http/edgetest"
)

// TestHTTPSuite runs the Idempotency-Key middleware over a database that is opened twice, as two servers have it.
func TestHTTPSuite(t *testing.T) {
	t.Parallel()
	edgetest.Run(t, func(t testing.TB) edgetest.Setup {
		db := openFor(t, Options{})
		return edgetest.Setup{Store: db.Store(), Other: openAgain(t, db).Store()}
	})
}

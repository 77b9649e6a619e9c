package sqlite

import (
	"testing"

	"github.com/semel-dev/semel/outbox/relaytest"
)

// TestOutboxRelay: late commits are left out, because the database has one writer at a time.
func TestOutboxRelay(t *testing.T) {
	relaytest.Run(t, func(t testing.TB) relaytest.Setup {
		db := openFor(t, Options{Visibility: relaytest.Visible})
		return relaytest.Setup{In: db.Queue("in"), Store: db.Store(), Outbox: db.Queue("outbox")}
	})
}

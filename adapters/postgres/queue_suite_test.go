package postgres

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest"
)

func TestQueueSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		db := queueDB(t, Options{Visibility: 500 * time.Millisecond})
		return semeltest.QueueSetup{Queue: db.Queue("orders"), Visibility: 500 * time.Millisecond, MaxBody: 30 << 20}
	})
}

// TestQueueSuiteBare does without notifications and without prepared statements, as behind a pooler, and in a database
// whose transactions are serializable unless they say otherwise.
func TestQueueSuiteBare(t *testing.T) {
	t.Parallel()
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		u := schemaURL(t) + "&default_query_exec_mode=exec&default_transaction_isolation=serializable"
		db := openURL(t, u, Options{Visibility: 500 * time.Millisecond, NoListen: true})
		return semeltest.QueueSetup{Queue: db.Queue("orders"), Visibility: 500 * time.Millisecond}
	})
}

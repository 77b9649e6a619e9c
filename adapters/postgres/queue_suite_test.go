package postgres

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

func TestQueueSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		s := queueSetup(t, schemaURL(t), Options{})
		s.MaxBody = 30 << 20
		return s
	})
}

// TestQueueSuiteBare does without notifications and without prepared statements, as behind a pooler, and in a database
// whose transactions are serializable unless they say otherwise.
func TestQueueSuiteBare(t *testing.T) {
	t.Parallel()
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		u := schemaURL(t) + "&default_query_exec_mode=exec&default_transaction_isolation=serializable"
		return queueSetup(t, u, Options{NoListen: true})
	})
}

func queueSetup(t testing.TB, u string, o Options) semeltest.QueueSetup {
	o.Visibility = semeltest.Longer(t, 500*time.Millisecond)
	return semeltest.QueueSetup{
		Queue: openURL(t, u, o).Queue("orders"), Visibility: o.Visibility,
		Restart: func(t testing.TB) driver.Queue { return openURL(t, u, o).Queue("orders") },
	}
}

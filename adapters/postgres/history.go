package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// history numbers the stretches of time in which the server forgets nothing that it confirmed. Whatever this process
// remembers of the server is tied to one of them.
//
// A server that fails over, is restored or crashes was started at another moment than the one before, and every role may
// ask for that moment, on managed servers and behind poolers as well. It is asked for at the first use of each connection,
// and every Receive hears it: a pooler can keep our connections open while its own go to another server. A restart that
// lost nothing begins another history too, which only costs the memory.
type history struct {
	n       atomic.Uint64
	mu      sync.Mutex
	started time.Time // the server
}

const sqlStarted = "SELECT pg_postmaster_start_time()"

// prepared is where a connection notes which histories know it, so that it is prepared once for each DB: the pool may be
// the program's, and several may use it.
const prepared = "github.com/semel-dev/semel/adapters/postgres"

// prepare makes a connection ready at its first use.
func (h *history) prepare(ctx context.Context, c *pgx.Conn) {
	data := c.PgConn().CustomData()
	known, _ := data[prepared].(map[*history]bool)
	if known[h] {
		return
	}
	if known == nil {
		known = map[*history]bool{}
		data[prepared] = known
	}
	known[h] = true
	registerArrays(c)
	var started time.Time
	if err := c.QueryRow(ctx, sqlStarted, pgx.QueryExecModeExec).Scan(&started); err == nil {
		h.heard(started)
	} else {
		h.change() // it does not tell; a connection that is broken shows it to whoever uses it
	}
}

// heard tells when the server was started that has just responded.
func (h *history) heard(started time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started.Equal(started) {
		h.started = started
		h.change()
	}
}

// change begins another history.
func (h *history) change() { h.n.Add(1) }

func (h *history) now() uint64 { return h.n.Load() }

// History changes when the server may have forgotten what it confirmed. See [driver.Historian].
func (s *Store) History() uint64 { return s.db.history.now() }

package faults

import (
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// hold keeps a transaction open that did what the statements say, for a while.
func (r *fixture) hold(d time.Duration, statements string) {
	r.Helper()
	c, err := pgx.Connect(r.Context(), r.url)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close(r.Context())
	if _, err := c.Exec(r.Context(), "SET lock_timeout = 0; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; "+
		"BEGIN; "+statements); err != nil {
		r.Fatal(err)
	}
	time.Sleep(d) // for as long as the case wants the lock to last
	if _, err := c.Exec(r.Context(), "ROLLBACK"); err != nil {
		r.Fatal(err)
	}
}

// TestFM47_Locked has somebody else hold what the workers need: the ledger, records in progress, the row of a key that
// nobody has claimed yet, messages. The server gives up a wait after 100 ms, and after longer than a lease.
func TestFM47_Locked(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"100ms", "0"} {
		t.Run("lock_timeout="+timeout, func(t *testing.T) {
			inModes(t, map[string]string{"lock_timeout": timeout}, func(r *fixture) {
				r.spawn(r.task())
				r.spawn(r.task())
				for i, statements := range []string{
					"LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE",
					"SELECT FROM semel_record WHERE state = 1 FOR UPDATE",
					"UPDATE semel_message SET hold = hold WHERE pos % 3 = 0",
					"LOCK TABLE semel_record IN SHARE MODE",
				} {
					r.send(400)
					r.done(200*i + 50)
					r.hold(300*time.Millisecond, statements)
				}
				r.send(200)
				r.hold(visibility+500*time.Millisecond, "LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE")
				r.same()
				r.held()
			})
		})
	}
}

// TestFM47_OneLocked has somebody else hold what the effect of one key needs, for longer than two leases: the effects of all
// others are there while the lock lasts, and the blocked one is neither lost nor given up.
func TestFM47_OneLocked(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"100ms", "2s", "0"} {
		t.Run("lock_timeout="+timeout, func(t *testing.T) {
			inModes(t, map[string]string{"lock_timeout": timeout}, func(r *fixture) {
				r.send(300)
				keys := r.keys.Keys
				r.sql(`CREATE FUNCTION one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.key = ` + strconv.Itoa(keys/2) + ` THEN PERFORM pg_advisory_xact_lock(47); END IF; RETURN NEW; END $$;
CREATE TRIGGER one BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION one()`)
				c, err := pgx.Connect(r.Context(), r.url)
				if err != nil {
					r.Fatal(err)
				}
				defer c.Close(r.Context())
				if _, err := c.Exec(r.Context(), "SELECT pg_advisory_lock(47)"); err != nil {
					r.Fatal(err)
				}
				r.spawn(r.task())
				began := time.Now()
				r.done(keys - 1)
				r.Logf("%d of %d effects after %v, one is blocked", keys-1, keys, time.Since(began))
				r.until("the blocked one was returned", func() bool {
					return r.count(`SELECT count(*) FROM semel_record WHERE state = 2 AND encode(reason, 'escape') LIKE '%blocked by a lock%'`) == 1
				})
				time.Sleep(max(2*visibility-time.Since(began), 0)) // it does not end while the lock lasts
				if got := r.count(`SELECT count(*) FROM semel_dead_letter`); got != 0 {
					r.Errorf("%d dead letters", got)
				}
				if _, err := c.Exec(r.Context(), "SELECT pg_advisory_unlock(47)"); err != nil {
					r.Fatal(err)
				}
				r.same()
				r.held()
			})
		})
	}
}

// TestServerTimeouts sets the server's own time limits so low that they strike. They hold for the workers' role: what the
// test itself asks may take longer.
func TestServerTimeouts(t *testing.T) {
	t.Parallel()
	inModes(t, nil, func(r *fixture) {
		role := r.name() + "_worker"
		r.sql("CREATE ROLE " + role + " LOGIN SUPERUSER")
		for _, s := range []string{
			"statement_timeout = '500ms'", "idle_in_transaction_session_timeout = '300ms'", "idle_session_timeout = '500ms'",
		} {
			r.sql("ALTER ROLE " + role + " SET " + s)
		}
		task, u := r.task(), r.parsed()
		u.User = url.User(role)
		task.URL = u.String()
		r.spawn(task)
		r.spawn(task)
		for i := range 3 {
			r.send(300)
			r.done(100 * (i + 1))
			r.hold(time.Second, "LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE")
		}
		r.until("all idle sessions are ended", func() bool {
			return r.count(`SELECT count(*) FROM semel_message`) == 0 &&
				r.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state_change < clock_timestamp() - interval '1 s'`, role) == 0
		})
		r.send(100)
		r.same()
		r.held()
	})
}

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/semel-dev/semel/driver"
)

// claimOne claims a key for effects.
func claimOne(t *testing.T, s *Store, n int) driver.Hold {
	t.Helper()
	g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(n), Nonce: nonce(), Lease: time.Hour})
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("claim: %+v, %v", g, err)
	}
	return g[0].Hold
}

// TestEffects_RowsRefused: rows of semel's tables are refused, also if several go with one statement.
func TestEffects_RowsRefused(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	e := &driver.Statements{}
	for _, name := range []string{"a", "b"} {
		e.Insert("SEMEL_queue", []string{"name"}, name)
	}
	_, err := db.Store().Commit(t.Context(), work(claimOne(t, db.Store(), 1), e))
	if item := (*driver.ItemError)(nil); !errors.As(err, &item) || !strings.Contains(err.Error(), "semel's own") {
		t.Errorf("commit: %v", err)
	}
}

// TestEffects_TooLarge: a statement that does not fit in a packet is its message's failure.
func TestEffects_TooLarge(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	e := &driver.Statements{}
	e.Exec("SELECT '" + strings.Repeat("x", db.Facts().MaxPacket) + "'")
	_, err := db.Store().Commit(t.Context(), work(claimOne(t, db.Store(), 1), e))
	if item := (*driver.ItemError)(nil); !errors.As(err, &item) || item.Transient {
		t.Errorf("commit: %.300v", err)
	}
}

// TestEmit_TooLarge: a message that does not fit in a packet is the failure of the work that emits it, and Send names it too.
func TestEmit_TooLarge(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	big := driver.Message{ID: "big", Queue: "q", Body: make([]byte, db.Facts().MaxPacket)}
	w := []driver.Work{work(claimOne(t, db.Store(), 1), nil), work(claimOne(t, db.Store(), 2), nil)}
	w[1].Emit = []driver.Message{{ID: "small", Queue: "q"}, big}
	_, err := db.Store().Commit(t.Context(), w...)
	item := (*driver.ItemError)(nil)
	if !errors.As(err, &item) || item.Index != 1 || item.Transient {
		t.Errorf("commit: %.300v, want the error of item 1", err)
	}
	for _, err := range []error{err, db.Queue("q").Send(t.Context(), driver.Message{ID: "small"}, big)} {
		if err == nil || !strings.Contains(err.Error(), `"big"`) || !strings.Contains(err.Error(), "max_allowed_packet") {
			t.Errorf("error %.300v does not name the message and the setting", err)
		}
	}
	if s, err := db.Queue("q").Stats(t.Context()); err != nil || s.Visible != 0 {
		t.Errorf("the queue has %+v, %v; want no message", s, err)
	}
	fits := driver.Message{ID: "fits", Body: make([]byte, db.Facts().MaxPacket-packetRest)}
	if err := db.Queue("q").Send(t.Context(), fits); err != nil {
		t.Errorf("send the largest message: %.300v", err)
	}
}

// TestFM50_NodeNotReady: a node of Galera without its cluster is an outage, which is no handler's failure.
func TestFM50_NodeNotReady(t *testing.T) {
	notReady := fmt.Errorf("commit: %w", &mysqldriver.MySQLError{Number: 1047, Message: "WSREP has not yet prepared node for application use"})
	for _, committing := range []bool{false, true} {
		if err := wrote(notReady, committing); !errors.Is(err, driver.ErrOutage) || !errors.Is(err, driver.ErrNotCommitted) {
			t.Errorf("committing %v: %v is no outage", committing, err)
		}
	}
	if item := (*driver.ItemError)(nil); errors.As(refused(0, notReady), &item) {
		t.Error("a statement is blamed for it")
	}
	if err := (&transaction{}).Transient(notReady); !errors.Is(err, driver.ErrOutage) {
		t.Errorf("a handler's own statement: %v", err)
	}
}

// expiring is a context whose deadline passes when the test says.
type expiring struct {
	context.Context
	done chan struct{}
}

func (c expiring) Done() <-chan struct{} { return c.done }

func (c expiring) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestEffects_TooSlow: a statement that runs for too long names its message, and is no outage.
func TestEffects_TooSlow(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	good, slow := &driver.Statements{}, &driver.Statements{}
	good.Exec("INSERT INTO ledger VALUES ('good')")
	slow.Exec("SELECT SLEEP(1000)")
	works := []driver.Work{work(claimOne(t, db.Store(), 1), good), work(claimOne(t, db.Store(), 2), slow)}
	ctx, result := expiring{t.Context(), make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := db.Store().Commit(ctx, works...)
		result <- err
	}()
	var id int64
	await(t, func() bool {
		err := db.SQL().QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND info = 'SELECT SLEEP(1000)'").Scan(&id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		return err == nil
	})
	close(ctx.done)
	err := <-result
	execSQL(t, db, "KILL ?", id)
	item := (*driver.ItemError)(nil)
	if !errors.As(err, &item) || item.Index != 1 || !item.Transient || errors.Is(err, driver.ErrOutage) {
		t.Errorf("commit: %v", err)
	}
}

// TestEffects_RollbackOnTimeout: on a server that rolls back the transaction when a lock is waited for in vain, no row is
// written outside of it.
func TestEffects_RollbackOnTimeout(t *testing.T) {
	t.Parallel()
	_, address := own(t, map[string]string{"innodb_rollback_on_timeout": "1"})
	db := openURL(t, address, Options{})
	execSQL(t, db, "CREATE TABLE numbers (n INT PRIMARY KEY)")
	other, err := db.SQL().BeginTx(t.Context(), nil)
	if err == nil {
		_, err = other.ExecContext(t.Context(), "INSERT INTO numbers VALUES (2)")
	}
	if err != nil {
		t.Fatal(err)
	}
	e := &driver.Statements{}
	for n := range 3 {
		e.Insert("numbers", []string{"n"}, n)
	}
	_, err = db.Store().Commit(t.Context(), work(claimOne(t, db.Store(), 1), e))
	if item := (*driver.ItemError)(nil); !errors.As(err, &item) || !errors.Is(err, driver.ErrBlocked) {
		t.Errorf("commit: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	var n int
	if scan(t, db, "SELECT COUNT(*) FROM numbers", &n); n != 0 {
		t.Errorf("a refused commit wrote %d rows", n)
	}
}

// TestClaim_WaitingBesideFirst: in one call, a version that waits for the one before it does not remove the record that this
// one makes.
func TestClaim_WaitingBesideFirst(t *testing.T) {
	t.Parallel()
	s := openFor(t, Options{}).Store()
	second := driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour, Version: "2", After: "1"}
	first := driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour, Version: "1"}
	g, err := s.Claim(t.Context(), second, first)
	if err != nil || g[0].Verdict == driver.Acquired || g[1].Verdict != driver.Acquired {
		t.Fatalf("claim: %+v, %v", g, err)
	}
	if o, err := s.Finish(t.Context(), work(g[1].Hold, nil).Finish); err != nil || o[0] != driver.Applied {
		t.Errorf("finish of what was acquired: %v, %v", o, err)
	}
}

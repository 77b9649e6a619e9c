package mysql

import (
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestTx_SessionIsSetUpAgain: what a handler sets in its session does not reach the next one.
func TestTx_SessionIsSetUpAgain(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{MaxConns: 1})
	const facts = "SELECT CONCAT_WS(' ', DATABASE(), @@sql_select_limit, ABS(UNIX_TIMESTAMP(NOW(6)) - UNIX_TIMESTAMP(SYSDATE(6))) < 60, " +
		"@@character_set_client, @@character_set_results, @@collation_connection, @@autocommit)"
	var want string
	scan(t, db, facts, &want)
	for n, q := range []string{
		"SET sql_select_limit = 1", "SET timestamp = 1", "SET NAMES latin1", "SET SESSION TRANSACTION READ ONLY", "USE information_schema",
	} {
		x, tx, _ := begin(t, db.Store(), n)
		if _, err := tx.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if err := x.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got string
		if scan(t, db, facts, &got); got != want {
			t.Errorf("behind %s the next session has %s, want %s", q, got, want)
		}
		execSQL(t, db, "INSERT INTO ledger VALUES ('behind')")
	}
}

// TestTx_OpenRows: a handler that leaves rows open is no outage, which would stop everybody else.
func TestTx_OpenRows(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	x, tx, hold := begin(t, db.Store(), 1)
	open, err := tx.QueryContext(t.Context(), "SELECT 1 UNION SELECT 2")
	if err != nil || open.Err() != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	err = x.Commit(t.Context(), driver.Work{Finish: driver.Finish{Hold: hold, Final: driver.Complete, Keep: time.Hour}})
	if !errors.Is(err, driver.ErrNotCommitted) || errors.Is(err, driver.ErrOutage) {
		t.Errorf("Commit returns %v", err)
	}
	if !try(t, db.Store(), 1) {
		t.Error("the key is not free")
	}
}

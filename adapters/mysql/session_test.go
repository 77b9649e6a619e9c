package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
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

// frozen is a driver whose server does not respond to BEGIN.
type frozen struct{ sqldriver.Conn }

func (frozen) Connect(context.Context) (sqldriver.Conn, error) { return frozen{}, nil }
func (frozen) Driver() sqldriver.Driver                        { return nil }
func (frozen) Close() error                                    { return nil }

func (frozen) BeginTx(ctx context.Context, _ sqldriver.TxOptions) (sqldriver.Tx, error) {
	if ctx.Done() == nil {
		return nil, errors.New("it would wait forever")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTx_FrozenServer: a server that does not respond to BEGIN holds nobody for longer than the call's context.
func TestTx_FrozenServer(t *testing.T) {
	t.Parallel()
	pool := sql.OpenDB(frozen{})
	defer func() { _ = pool.Close() }()
	c, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("open returned %v, want context.Canceled", err)
	}
}

// TestQueue_AckBesideALockedMessage: the ack of a message waits for no other one that a session has locked.
func TestQueue_AckBesideALockedMessage(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	q := db.Queue("orders")
	if err := q.Send(t.Context(), make([]driver.Message, 20)...); err != nil {
		t.Fatal(err)
	}
	ds, err := q.Receive(t.Context(), 20)
	if err != nil || len(ds) != 20 {
		t.Fatal(ds, err)
	}
	var acks []driver.Settlement
	for _, d := range ds[1:] {
		acks = append(acks, driver.Settlement{Receipt: d.Receipt})
	}
	tx, err := db.SQL().BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "UPDATE semel_message SET count = 7 WHERE pos = ?", ds[0].Receipt.(*receipt).Pos)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o, err := q.Settle(t.Context(), acks...); err != nil || o[0] != driver.Applied {
		t.Errorf("Settle returned %v, %v", o, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

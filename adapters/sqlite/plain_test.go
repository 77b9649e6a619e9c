package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/semeltest"
)

// This file is a store on database/sql with nothing of its own but what package rowstore asks for: the least that a database
// has to offer. The suite of stores runs on it.

const plainSchema = `
CREATE TABLE plain_state (token INTEGER NOT NULL);
INSERT INTO plain_state VALUES (0);
CREATE TABLE semel_record (place BLOB PRIMARY KEY, token INTEGER, state INTEGER, consumer TEXT, rest BLOB,
  created_at INTEGER, updated_at INTEGER, retain_until INTEGER, lease_until INTEGER, data BLOB);
CREATE INDEX plain_retain ON semel_record (retain_until);
CREATE INDEX plain_lease ON semel_record (lease_until);
CREATE TABLE semel_step (place BLOB, epoch INTEGER, version BLOB, name TEXT, seq INTEGER, state INTEGER, undo INTEGER,
  failures INTEGER, token INTEGER, nonce BLOB, updated_at INTEGER, result BLOB, reason TEXT, PRIMARY KEY (place, epoch, version, name));
CREATE TABLE semel_audit (seq INTEGER PRIMARY KEY, place BLOB, at INTEGER, who TEXT, kind INTEGER, was INTEGER, became INTEGER,
  generation INTEGER, token INTEGER, verified INTEGER, renewed INTEGER, consumer TEXT, tenant TEXT, key TEXT, reason TEXT);
CREATE TABLE semel_duplicate (place BLOB, nr INTEGER, at INTEGER, message TEXT, worker TEXT, queue TEXT, delivery INTEGER,
  decision TEXT, cause TEXT, PRIMARY KEY (place, nr));
CREATE TRIGGER plain_gone AFTER DELETE ON semel_record BEGIN
  DELETE FROM semel_step WHERE place = OLD.place;
  DELETE FROM semel_audit WHERE place = OLD.place;
  DELETE FROM semel_duplicate WHERE place = OLD.place;
  DELETE FROM semel_case WHERE place = OLD.place;
END;
CREATE TABLE semel_case (place BLOB PRIMARY KEY, consumer TEXT, state INTEGER, since INTEGER);
CREATE TABLE semel_worker (id TEXT PRIMARY KEY, seen INTEGER, queue TEXT, consumer TEXT, report BLOB);
CREATE TABLE semel_long_term (consumer TEXT PRIMARY KEY, period INTEGER);
` + ledgerTables

// plainStore is the store.
type plainStore struct {
	*slowPath
	*workers
	db plainDB
}

func (s *plainStore) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: "plain", Kind: "plain", Durable: true, ServerClock: true, MaxTx: time.Minute, ListsUncertain: true, ClaimsAtCommit: true}
}

func (s *plainStore) Joins(driver.Queue) bool { return false }

func (s *plainStore) OffersTx(handle any) bool { _, ok := handle.(**sql.Tx); return ok }

// plainDB is the database.
type plainDB struct {
	pool *sql.DB
	now  func() time.Time
	turn chan struct{} // SQLite has one writer
	bug  string        // what is planted
}

func (d plainDB) Layout() rowstore.Layout {
	return rowstore.Layout{Columns: "data", Record: readPlain, Now: func(rowstore.SQL) (time.Time, error) { return d.now(), nil }, Check: func(w *driver.Work) error {
		if _, ok := w.Effects.(*driver.Statements); w.Effects != nil && !ok {
			return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
		}
		if w.Ack != nil || len(w.Emit) > 0 {
			return driver.ErrUnsupported
		}
		return nil
	}}
}

func readPlain(r rowstore.Row) (rec driver.Record, err error) {
	if err = gob.NewDecoder(bytes.NewReader(r.Bytes(0))).Decode(&rec); err != nil {
		err = fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return rec, err
}

func (d plainDB) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	return rowstore.Query(ctx, d.pool, row, query, columns(args)...)
}

// Atomic runs f in a transaction.
func (d plainDB) Atomic(ctx context.Context, _ int, f func(rowstore.Tx) error) error {
	x, err := d.open(ctx)
	if err == nil {
		err = x.end(f(x))
	}
	return err
}

// open takes the turn and begins.
func (d plainDB) open(ctx context.Context) (*plainTx, error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ctx.Err())
	}
	tx, err := d.pool.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		<-d.turn
		return nil, fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
	}
	return &plainTx{ctx: context.WithoutCancel(ctx), db: d, tx: tx}, nil
}

// plainTx is a transaction.
type plainTx struct {
	ctx context.Context
	db  plainDB
	tx  *sql.Tx
}

// end commits, or rolls back after an error.
func (x *plainTx) end(err error) error {
	defer func() { <-x.db.turn }()
	if err != nil {
		return errors.Join(err, x.tx.Rollback())
	}
	return x.tx.Commit()
}

func (x *plainTx) Exec(query string, args ...any) error {
	_, err := x.tx.ExecContext(x.ctx, query, columns(args)...)
	return err
}

func (x *plainTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	return rowstore.Query(x.ctx, x.tx, row, query, columns(args)...)
}

func (x *plainTx) Lock(keys []rowstore.ID, _ rowstore.Mode) ([]rowstore.Locked, error) {
	out := make([]rowstore.Locked, len(keys))
	for i, id := range keys {
		l := &out[i]
		l.Now = time.UnixMicro(x.db.now().UnixMicro())
		err := x.Query(func(r rowstore.Row) error {
			if l.Record, l.Err = readPlain(r); l.Err == nil && l.Record.Key != id.Key {
				l.Record, l.Err = driver.Record{}, rowstore.ErrCollision
			}
			return nil
		}, "SELECT data FROM semel_record WHERE place = ?", id.Place)
		if err != nil {
			return nil, err
		}
		draw := func(r rowstore.Row) error { l.Drawn = uint64(r.Int(0)); return nil }
		if x.db.bug == bugToken {
			continue
		}
		if err := x.Query(draw, "UPDATE plain_state SET token = token + 1 RETURNING token"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (x *plainTx) Put(l *rowstore.Locked, r *driver.Record) error {
	if err := rowstore.WriteCase(x, &l.Record, r); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	place := rowstore.PlaceOf(&r.Key)
	return x.Exec(`INSERT INTO semel_record (place, token, state, consumer, rest, created_at, updated_at, retain_until, lease_until,
		data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET token = excluded.token, state = excluded.state,
		updated_at = excluded.updated_at, retain_until = excluded.retain_until, lease_until = excluded.lease_until, data = excluded.data`,
		place, int64(r.Token), int64(r.State), r.Key.Consumer, place.Rest(&r.Key), r.CreatedAt, r.UpdatedAt,
		r.RetainUntil, r.LeaseUntil, b.Bytes())
}

func (x *plainTx) Drop(l *rowstore.Locked) error {
	if x.db.bug == bugDrop {
		return nil
	}
	return x.Exec("DELETE FROM semel_record WHERE place = ? AND token = ?", rowstore.PlaceOf(&l.Record.Key), int64(l.Record.Token))
}

func (x *plainTx) Works(w []driver.Work, which []int) error {
	for _, i := range which {
		e, _ := w[i].Effects.(*driver.Statements)
		if e == nil || x.db.bug == bugWorks {
			continue
		}
		for _, st := range e.List {
			res, err := x.tx.ExecContext(x.ctx, st.SQL, st.Args...)
			if err == nil && st.Rows >= 0 {
				if n, _ := res.RowsAffected(); n != int64(st.Rows) {
					err = fmt.Errorf("changed %d rows, must change %d", n, st.Rows)
				}
			}
			if err != nil {
				return &driver.ItemError{Index: i, Err: err}
			}
		}
	}
	return nil
}

// plainHeld is an open transaction.
type plainHeld struct {
	*plainTx
	rowstore.Held
	ended bool
}

func (s *plainStore) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	for {
		tx, err := s.db.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		x := &plainHeld{plainTx: tx}
		out, durable, err := rowstore.ClaimTx(tx, rowstore.Make, &x.Held, c...)
		if err == nil && len(durable) == 0 && len(x.Claims) > 0 {
			return x, out, nil
		}
		if err = errors.Join(err, x.Rollback(ctx)); err != nil || len(durable) == 0 {
			return nil, out, err
		}
		if err := s.db.Atomic(ctx, len(c), func(tx rowstore.Tx) error { return rowstore.Park(tx, rowstore.Wait, c...) }); err != nil {
			return nil, nil, err
		}
	}
}

func (x *plainHeld) As(handle any) bool {
	h, ok := handle.(**sql.Tx)
	if ok {
		*h = x.tx
	}
	return ok
}

func (x *plainHeld) Commit(_ context.Context, w ...driver.Work) error {
	if x.ended {
		return sql.ErrTxDone
	}
	x.ended = true
	return x.end(x.Held.Commit(x.plainTx, w, func() ([]driver.Outcome, error) {
		return rowstore.CommitTx(x.plainTx, rowstore.Wait, w...)
	}))
}

func (x *plainHeld) Rollback(context.Context) error {
	if x.ended {
		return nil
	}
	x.ended = true
	defer func() { <-x.db.turn }()
	return x.tx.Rollback()
}

func openPlain(t testing.TB, now func() time.Time, bug string) (*plainStore, *semeltest.Ledger) {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "plain.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate")
	if err == nil {
		_, err = pool.ExecContext(t.Context(), plainSchema)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	db := plainDB{pool: pool, now: now, turn: make(chan struct{}, 1), bug: bug}
	l := ledger(nil)
	l.Count = func(ctx context.Context, id string) (n int, err error) {
		err = pool.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", id).Scan(&n)
		return n, err
	}
	return &plainStore{rowstore.New(db), rowstore.NewWorkers(db), db}, l
}

func plainSetup(bug string) semeltest.StoreFactory {
	return func(t testing.TB) semeltest.StoreSetup {
		c := newClock()
		s, l := openPlain(t, c.now, bug)
		damage := func(t testing.TB, k driver.Key) {
			if _, err := s.db.pool.ExecContext(t.Context(), "UPDATE semel_record SET data = x'00' WHERE place = ?", []byte(rowstore.PlaceOf(&k))); err != nil {
				t.Fatal(err)
			}
		}
		return semeltest.StoreSetup{Store: s, Advance: c.advance, Ledger: l, Damage: damage, Sample: semeltest.Sampled(23)}
	}
}

// TestPlainRows: what package rowstore makes of a database's few operations is a store.
func TestPlainRows(t *testing.T) { semeltest.RunStore(t, plainSetup("")) }

// The mistakes that a database can make in its operations.
const (
	bugToken = "no token is drawn"
	bugDrop  = "a dropped record stays"
	bugWorks = "effects are left out"
)

// TestPlainRowsMistakes: the suite finds what a database does wrong.
func TestPlainRowsMistakes(t *testing.T) {
	for bug, only := range map[string]string{
		bugToken: "FM12 tokens survive a purge", bugDrop: "FM41 sweep", bugWorks: "commit is guarded",
	} {
		t.Run(bug, func(t *testing.T) {
			if len(semeltest.CheckStore(t, plainSetup(bug), only)) == 0 {
				t.Error("the suite did not find it")
			}
		})
	}
}

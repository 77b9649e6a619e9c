package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// TestFM82_UnreadableRecord: a record that a newer program wrote stops its key alone. Its message becomes a dead letter in the
// end, and Do returns the error at once.
func TestFM82_UnreadableRecord(t *testing.T) {
	insert := "INSERT INTO ledger VALUES ($1)"
	for name, x := range map[string]struct {
		h          semel.Handler
		committers int
		batch      int
	}{
		"statements": {semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			e.Exec(insert, a.Key.Raw)
			return nil
		}), 2, 0},
		"one at a time": {semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			e.Exec(insert, a.Key.Raw)
			return nil
		}), 1, 1},
		"open": {semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
			_, err := tx.Exec(ctx, insert, a.Key.Raw)
			return err
		}), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openFor(t, Options{Visibility: refusedLease})
			s := db.Store()
			key := driver.Key{Consumer: "default", Raw: "bad"}
			mustClaim(t, s, driver.Claim{Key: key, Nonce: driver.Nonce{1}, Lease: time.Hour})
			execSQL(t, db, `UPDATE semel_record SET watermark = '\x0300'`)
			began := time.Now()
			_, _, err := semel.Do(t.Context(), s, key, func(context.Context, *semel.Attempt) (int, error) { return 1, errors.New("it ran") })
			if !errors.Is(err, semel.ErrUnreadable) || time.Since(began) > time.Minute {
				t.Errorf("Do returned %v after %v", err, time.Since(began))
			}
			c := consume(t, db, x.h, func(c *semel.Config) { c.Committers, c.Batch = x.committers, x.batch })
			c.send(append([]string{"bad"}, healthyKeys(20)...)...)
			if took := c.until("all others are done", func() bool { return c.count("SELECT count(*) FROM ledger") == 20 }); took > others {
				t.Errorf("the others took %v", took)
			}
			if r := c.deadLetter(); !strings.Contains(r, `key "bad"`) || !strings.Contains(r, "upgrade this worker") {
				t.Errorf("the dead letter says %q", r)
			}
			if n := c.count(`SELECT count(*) FROM semel_record WHERE watermark = '\x0300' AND state = 1`); n != 1 {
				t.Error("the record was written")
			}
		})
	}
}

// TestFM82_RecordUnreadableMeanwhile: a newer program writes to a record while this one runs its key. The ends of the others
// are written; that one ends with its lease.
func TestFM82_RecordUnreadableMeanwhile(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ws := worksFor(t, s, "k", 3)
	execSQL(t, db, `UPDATE semel_record SET watermark = '\x0300' WHERE substring(place FROM 8) = 'k-1'`)
	for i := range ws { // not the plain way, which does not read records
		ws[i].Finish.Final = driver.Release
	}
	out, err := s.Commit(t.Context(), ws...)
	if err != nil || out[0] != driver.Applied || out[1] != driver.Unknown || out[2] != driver.Applied {
		t.Errorf("commit returned %v, %v", out, err)
	}
	fs := []driver.Finish{ws[1].Finish}
	if out, err := s.Finish(t.Context(), fs...); err != nil || out[0] != driver.Unknown {
		t.Errorf("finish returned %v, %v", out, err)
	}
}

// TestFM46_RefusedStep: a step whose effects are refused each time spends the attempts of its message.
func TestFM46_RefusedStep(t *testing.T) {
	db := openFor(t, Options{Visibility: refusedLease})
	c := consume(t, db, steps.Handler(func(ctx context.Context, r *steps.Run) error {
		return steps.InTx(ctx, r, "write", func(_ context.Context, tx *semel.Statements) error {
			tx.Exec("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'XX000'; END $$")
			return nil
		})
	}), nil)
	c.send("bad")
	if r := c.deadLetter(); !strings.Contains(r, "2 failed runs, limit 2") || !strings.Contains(r, "XX000") {
		t.Errorf("the dead letter says %q", r)
	}
}

// TestFM47_BlockedStep: a step whose effects wait for a lock is nobody's failure.
func TestFM47_BlockedStep(t *testing.T) {
	db := openFor(t, Options{Visibility: refusedLease, LockWait: 100 * time.Millisecond})
	execSQL(t, db, "INSERT INTO ledger VALUES ('locked')")
	tx := beginOwn(t, db)
	if _, err := tx.Exec(t.Context(), "UPDATE ledger SET id = id"); err != nil {
		t.Fatal(err)
	}
	c := consume(t, db, steps.Handler(func(ctx context.Context, r *steps.Run) error {
		return steps.InTx(ctx, r, "write", func(_ context.Context, tx *semel.Statements) error {
			tx.ExecRows(1, "UPDATE ledger SET id = 'written'")
			return nil
		})
	}), func(c *semel.Config) { c.MaxAttempts = 1 })
	c.send("waits")
	c.until("its record says what it waits for", func() bool {
		return c.count("SELECT count(*) FROM semel_record WHERE encode(reason, 'escape') LIKE '%blocked by a lock%'") == 1
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.until("it is written", func() bool { return c.count("SELECT count(*) FROM ledger WHERE id = 'written'") == 1 })
}

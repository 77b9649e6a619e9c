package model

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
)

func sqliteSide(db *sqlite.DB) *side {
	s := db.Store()
	return &side{
		store:  s,
		buffer: func(ids []string, refuse bool) any { return statements(s, ids, refuse) },
		addTx: func(ctx context.Context, tx driver.Tx, id string) error {
			var x *sql.Tx
			tx.As(&x)
			_, err := x.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", id)
			return err
		},
		count: func(ctx context.Context) (map[string]int, error) {
			n := map[string]int{}
			rows, err := db.SQL().QueryContext(ctx, "SELECT id, count(*) FROM ledger GROUP BY id")
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				var c int
				if err := rows.Scan(&id, &c); err != nil {
					return nil, err
				}
				n[id] = c
			}
			return n, rows.Err()
		},
		// The host's clock cannot be moved: everything that was written moves into its past. What a sweep knows of the
		// records is not true any more then.
		advance: func(d time.Duration) error {
			// All times of a record count from this one.
			_, err := db.SQL().ExecContext(context.Background(), "UPDATE semel_record SET created_at = created_at - ?", d.Milliseconds())
			if err == nil {
				_, err = db.SQL().ExecContext(context.Background(), "UPDATE semel_block SET due = 0")
			}
			return err
		},
	}
}

// TestSQLiteAgainstMemory runs random histories. A failing one is printed with its seed, and made smaller.
func TestSQLiteAgainstMemory(t *testing.T) {
	db, err := sqlite.Open(t.Context(), t.TempDir()+"/semel.db", sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	run := func(query string) {
		t.Helper()
		if _, err := db.SQL().ExecContext(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	run("CREATE TABLE ledger (id TEXT)")
	compareWith(t, func(*rapid.T) *side {
		for _, table := range []string{"ledger", "semel_record", "semel_step", "semel_audit"} {
			run("DELETE FROM " + table)
		}
		run("UPDATE semel_block SET due = 0")
		return sqliteSide(db)
	})
}

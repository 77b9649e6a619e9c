package crew

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/semeltest/server"
)

// sqlTables makes the tables of the test: the ledger, with nothing that would keep a second row of a key out, and the
// marks of the naive inboxes.
const sqlTables = `
CREATE TABLE ledger (key bigint NOT NULL, token bigint NOT NULL, worker int NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE seen (key bigint PRIMARY KEY);`

// Prepare makes semel's tables and the test's in a new database.
func Prepare(ctx context.Context, url string) error {
	db, err := postgres.Open(ctx, url, postgres.Options{Create: true})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	_, err = server.SQL(ctx, url, sqlTables)
	return err
}

// Verdict is what the ledger says.
type Verdict struct {
	Keys int `json:"keys"` // sent: 1 to Keys
	// Rows is the number of effects. Lost keys have none, doubled keys more than one; strange ones were never sent.
	Rows    int `json:"rows"`
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	Strange int `json:"strange"`
	// DeadLetters and Parked count messages that need a person; Unfinished counts records that are neither completed nor
	// parked, Left the messages that are still in the queue.
	DeadLetters int `json:"dead_letters"`
	Parked      int `json:"parked"`
	Unfinished  int `json:"unfinished"`
	Left        int `json:"left"`
	// Unfenced counts effects whose token is not their record's: made by an attempt that did not win.
	Unfenced int `json:"unfenced"`
}

// Held reports whether every key took effect once and nothing is left over.
func (v Verdict) Held() bool {
	return v == Verdict{Keys: v.Keys, Rows: v.Keys}
}

// Effects reports whether every key took effect once, whatever else there is.
func (v Verdict) Effects() bool { return v.Lost == 0 && v.Doubled == 0 && v.Strange == 0 }

func (v Verdict) String() string {
	return fmt.Sprintf("%d keys, %d effects: %d lost, %d doubled, %d never sent, %d by an attempt that lost; "+
		"%d dead letters, %d parked, %d records unfinished, %d messages left",
		v.Keys, v.Rows, v.Lost, v.Doubled, v.Strange, v.Unfenced, v.DeadLetters, v.Parked, v.Unfinished, v.Left)
}

// sqlVerdict reads the ledger, and the tables of the adapter, with SQL that shares nothing with it. %[1]d is the number of
// keys. A worker without a guard writes token 0, and has no record to compare.
const sqlVerdict = `
SET statement_timeout = 0;
CREATE TEMP TABLE l AS SELECT key, count(*) AS n, max(token) AS token FROM ledger GROUP BY key;
ANALYZE l;
SELECT (SELECT coalesce(sum(n), 0) FROM l),
  (SELECT count(*) FROM generate_series(1, %[1]d) k LEFT JOIN l ON l.key = k WHERE l.key IS NULL),
  (SELECT count(*) FROM l WHERE n > 1),
  (SELECT count(*) FROM l WHERE key NOT BETWEEN 1 AND %[1]d),
  (SELECT count(*) FROM semel_dead_letter),
  (SELECT count(*) FROM semel_record WHERE state = 5),
  (SELECT count(*) FROM semel_record WHERE state NOT IN (3, 5)),
  (SELECT count(*) FROM semel_message),
  (SELECT count(*) FROM l JOIN semel_records r ON r.key = l.key::text
    WHERE l.token > 0 AND r.token <> l.token);`

// Judge reads the ledger of keys 1 to keys.
func Judge(ctx context.Context, url string, keys int) (Verdict, error) {
	v := Verdict{Keys: keys}
	out, err := server.SQL(ctx, url, fmt.Sprintf(sqlVerdict, keys))
	if err != nil {
		return v, fmt.Errorf("read the ledger: %w", err)
	}
	_, err = fmt.Sscan(strings.ReplaceAll(out, "|", " "), &v.Rows, &v.Lost, &v.Doubled, &v.Strange, &v.DeadLetters, &v.Parked,
		&v.Unfinished, &v.Left, &v.Unfenced)
	if err != nil {
		return v, fmt.Errorf("read the ledger: %q: %w", out, err)
	}
	return v, nil
}

// Left counts the messages that are still in the queue.
func Left(ctx context.Context, db *postgres.DB) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = db.Pool().QueryRow(ctx, `SELECT count(*) FROM semel_message`).Scan(&n)
	return n, err
}

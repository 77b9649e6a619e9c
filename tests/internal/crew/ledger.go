package crew

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// sqlTables makes the tables of the test: the ledger, with nothing that would keep a second row of a key out, and the
// marks of the naive inboxes.
const sqlTables = `
CREATE TABLE ledger (key bigint NOT NULL, token bigint NOT NULL, worker int NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE seen (key bigint PRIMARY KEY);`

// mysqlLedger is the ledger on MySQL.
const mysqlLedger = "CREATE TABLE campaign.ledger (`key` bigint NOT NULL, token bigint NOT NULL, worker int NOT NULL)"

// Verdict is what the ledger says.
type Verdict struct {
	Keys int `json:"keys"` // sent: 1 to Keys
	// Rows is the number of effects. Lost keys have none, doubled keys more than one; strange ones were never sent.
	Rows    int `json:"rows"`
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	Strange int `json:"strange"`
	// Doubted keys have more than one effect, and not more than one for each doubt that their record counts: only in mode
	// Outside, where they are none of the doubled ones.
	Doubted int `json:"doubted,omitempty"`
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
	return v == Verdict{Keys: v.Keys, Rows: v.Rows, Doubted: v.Doubted} && (v.Rows == v.Keys || v.Doubted > 0)
}

// Effects reports whether every key took effect once, whatever else there is.
func (v Verdict) Effects() bool { return v.Lost == 0 && v.Doubled == 0 && v.Strange == 0 }

func (v Verdict) String() string {
	doubted := ""
	if v.Doubted > 0 {
		doubted = fmt.Sprintf(" (and %d within their recorded doubts)", v.Doubted)
	}
	return fmt.Sprintf("%d keys, %d effects: %d lost, %d doubled%s, %d never sent, %d by an attempt that lost; "+
		"%d dead letters, %d parked, %d records unfinished, %d messages left",
		v.Keys, v.Rows, v.Lost, v.Doubled, doubted, v.Strange, v.Unfenced, v.DeadLetters, v.Parked, v.Unfinished, v.Left)
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

// mysqlVerdict reads the ledger on MySQL: rows, keys that were sent, doubled and strange keys. Both ? are the number of keys.
const mysqlVerdict = "SELECT coalesce(sum(n), 0), coalesce(sum(k BETWEEN 1 AND ?), 0), coalesce(sum(n > 1), 0)," +
	" coalesce(sum(k NOT BETWEEN 1 AND ?), 0) FROM (SELECT `key` AS k, count(*) AS n FROM ledger GROUP BY `key`) l"

// Judge is [Judge] for a task on any servers. No worker runs any more: RabbitMQ does not show what workers hold.
func (o *Opened) Judge(ctx context.Context, t Task, keys int) (v Verdict, err error) {
	if o.mysql != nil {
		var sent int
		v.Keys = keys
		err = o.mysql.SQL().QueryRowContext(ctx, mysqlVerdict, keys, keys).Scan(&v.Rows, &sent, &v.Doubled, &v.Strange)
		v.Lost = keys - sent
	} else {
		v, err = Judge(ctx, t.URL, keys)
	}
	if err != nil || t.Kind == "" {
		return v, err
	}
	stats, err := o.stats(ctx)
	if err != nil {
		return v, err
	}
	v.Left = int(stats.Visible + stats.InFlight + stats.Delayed)
	if o.mysql == nil && t.Kind != "redis" {
		return v, nil
	}
	v.DeadLetters = int(stats.DeadLetters)
	err = o.records(ctx, t, &v)
	return v, err
}

// records reads the records through the adapter. In mode Outside effects that they account for are not doubled.
func (o *Opened) records(ctx context.Context, t Task, v *Verdict) error {
	extra := map[string]int{}
	if t.Mode == Outside {
		out, err := server.SQL(ctx, t.URL, `SELECT key, count(*) - 1 FROM ledger GROUP BY key HAVING count(*) > 1`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			key, n, _ := strings.Cut(strings.TrimSpace(line), "|")
			if extra[key], err = strconv.Atoi(n); err != nil {
				return fmt.Errorf("read the ledger: %q: %w", line, err)
			}
		}
	}
	scanner, ok := driver.As[driver.RecordScanner](o.Store)
	if !ok {
		return fmt.Errorf("%T does not scan its records", o.Store)
	}
	return scanner.ScanRecords(ctx, driver.RecordFilter{}, func(r driver.Record) error {
		switch r.State {
		case driver.Completed:
		case driver.Uncertain:
			v.Parked++
		default:
			v.Unfinished++
		}
		if n := extra[r.Key.Raw]; n > 0 && n <= r.Uncertainty {
			v.Doubled--
			v.Doubted++
		}
		return nil
	})
}

func (o *Opened) stats(ctx context.Context) (s driver.QueueStats, err error) {
	q, ok := driver.As[driver.QueueInspector](o.Queue)
	if !ok {
		return s, fmt.Errorf("%T does not count its messages", o.Queue)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return q.Stats(ctx)
}

// Left counts the messages that are still in the queue.
func (o *Opened) Left(ctx context.Context) (int, error) {
	s, err := o.stats(ctx)
	return int(s.Visible + s.InFlight + s.Delayed), err
}

// Missing is how many of the keys have no effect yet, if none has two.
func (o *Opened) Missing(ctx context.Context, keys int) (int, error) {
	const count = `SELECT count(*) FROM ledger`
	var n int
	var err error
	if o.mysql != nil {
		err = o.mysql.SQL().QueryRowContext(ctx, count).Scan(&n)
	} else {
		err = o.postgres.Pool().QueryRow(ctx, count).Scan(&n)
	}
	return max(0, keys-n), err
}

package mysql

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// The benchmarks compare the adapter with loops of the client alone, in turns on one server of their own: only ratios inside of
// one run count.
//
//	go test -run '^$' -bench . -benchtime 50x

const benchBatch = 100

// spent measures two things in turns.
type spent [2]time.Duration

func (s *spent) time(b *testing.B, i int, f func() error) {
	b.Helper()
	began := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	s[i] += time.Since(began)
}

func (s *spent) report(b *testing.B, items int) {
	for i, name := range []string{"raw/s", "semel/s"} {
		b.ReportMetric(float64(b.N*items)/s[i].Seconds(), name)
	}
	b.ReportMetric(s[0].Seconds()/s[1].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBatches compares claim, effect and completion of a batch with one INSERT of as many rows.
func BenchmarkBatches(b *testing.B) {
	_, address := own(b, nil)
	db := openURL(b, address, Options{})
	makeLedger(b, db)
	execSQL(b, db, "CREATE TABLE raw (id VARBINARY(255) PRIMARY KEY, body BLOB)")
	var s spent
	for n := 0; b.Loop(); n++ {
		s.time(b, 0, func() error { return rawInsert(b.Context(), db, n) })
		s.time(b, 1, func() error { return completeBatch(b.Context(), db.Store(), n) })
	}
	s.report(b, benchBatch)
}

func rawInsert(ctx context.Context, db *DB, n int) error {
	var args []any
	for i := range benchBatch {
		args = append(args, fmt.Sprintf("key-%d", n*benchBatch+i), make([]byte, 64))
	}
	_, err := db.SQL().ExecContext(ctx, "INSERT INTO raw (id, body) VALUES (?, ?)"+strings.Repeat(", (?, ?)", benchBatch-1), args...)
	return err
}

func completeBatch(ctx context.Context, s *Store, n int) error {
	claims, works := make([]driver.Claim, benchBatch), make([]driver.Work, benchBatch)
	for i := range claims {
		claims[i] = driver.Claim{Key: keyOf(n*benchBatch + i), Nonce: nonce(), Lease: time.Minute}
	}
	g, err := s.Claim(ctx, claims...)
	if err != nil {
		return err
	}
	for i := range g {
		e := &driver.Statements{}
		e.Insert("ledger", []string{"id"}, claims[i].Key.Raw)
		works[i] = work(g[i].Hold, e)
	}
	o, err := s.Commit(ctx, works...)
	if err == nil && o[0] != driver.Applied {
		err = fmt.Errorf("commit: %v", o[0])
	}
	return err
}

// BenchmarkQueue compares receive and ack with SELECT … FOR UPDATE SKIP LOCKED, UPDATE, COMMIT, and DELETE of the same messages.
func BenchmarkQueue(b *testing.B) {
	_, address := own(b, nil)
	db := openURL(b, address, Options{})
	execSQL(b, db, "CREATE TABLE raw (id BIGINT AUTO_INCREMENT PRIMARY KEY, due BIGINT NOT NULL, n INT NOT NULL, body BLOB, KEY raw_due (due, id))")
	q, body := db.Queue("orders"), make([]byte, 300)
	var ms []driver.Message
	for range benchBatch {
		ms = append(ms, driver.Message{ID: driver.NewMessageID(), Body: body})
	}
	var s spent
	for b.Loop() {
		if err := q.Send(b.Context(), ms...); err != nil {
			b.Fatal(err)
		}
		args := make([]any, benchBatch)
		for i := range args {
			args[i] = body
		}
		execSQL(b, db, "INSERT INTO raw (due, n, body) VALUES (0, 0, ?)"+strings.Repeat(", (0, 0, ?)", benchBatch-1), args...)
		s.time(b, 0, func() error { return rawReceive(b.Context(), db) })
		s.time(b, 1, func() error { return receiveBatch(b.Context(), q) })
	}
	s.report(b, benchBatch)
}

func rawReceive(ctx context.Context, db *DB) error {
	tx, err := db.SQL().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after an error
	found, err := tx.QueryContext(ctx, "SELECT id, body FROM raw WHERE due <= ? ORDER BY due, id LIMIT ? FOR UPDATE SKIP LOCKED", 1, benchBatch)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	var ids []any
	for found.Next() {
		var id int64
		var body []byte
		if err := found.Scan(&id, &body); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := found.Err(); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE raw SET due = due + 1000, n = n + 1 WHERE id IN "+values(len(ids)), ids...); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = db.SQL().ExecContext(ctx, "DELETE FROM raw WHERE id IN "+values(len(ids)), ids...)
	return err
}

func receiveBatch(ctx context.Context, q *Queue) error {
	ds, err := q.Receive(ctx, benchBatch)
	if err != nil || len(ds) != benchBatch {
		return fmt.Errorf("received %d, %w", len(ds), err)
	}
	acks := make([]driver.Settlement, len(ds))
	for i := range ds {
		acks[i].Receipt = ds[i].Receipt
	}
	_, err = q.Settle(ctx, acks...)
	return err
}

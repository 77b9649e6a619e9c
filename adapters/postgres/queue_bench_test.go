package postgres

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// BenchmarkReceiveSettle takes messages of 300 bytes through the queue in batches; sending is not measured.
func BenchmarkReceiveSettle(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			q := queueDB(b, Options{}).Queue("bench")
			fill(b, q, b.N*batch)
			b.ResetTimer()
			for range b.N {
				ds, err := q.Receive(b.Context(), batch)
				if err != nil || len(ds) != batch {
					b.Fatal(len(ds), err)
				}
				ackAll(b, q, ds)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/msg")
		})
	}
}

// BenchmarkReceiveTx does the same inside one transaction for each batch: no lease is written, and one commit is enough.
func BenchmarkReceiveTx(b *testing.B) {
	const batch = 100
	q := queueDB(b, Options{}).Queue("bench")
	fill(b, q, b.N*batch)
	b.ResetTimer()
	for range b.N {
		err := pgx.BeginFunc(b.Context(), q.db.pool, func(tx pgx.Tx) error {
			ds, err := q.ReceiveTx(b.Context(), tx, batch)
			if err != nil || len(ds) != batch {
				return fmt.Errorf("received %d: %w", len(ds), err)
			}
			ss := make([]driver.Settlement, len(ds))
			for i := range ds {
				ss[i].Receipt = ds[i].Receipt
			}
			_, err = q.SettleTx(b.Context(), tx, ss...)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/msg")
}

func BenchmarkSend(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			q := queueDB(b, Options{}).Queue("bench")
			ms := messages(0, batch)
			for range b.N {
				if err := q.Send(b.Context(), ms...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/msg")
		})
	}
}

// messages makes n messages of 300 bytes with ids from m-from.
func messages(from, n int) []driver.Message {
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprint("m-", from+i), Body: bytes.Repeat([]byte{'x'}, 300)}
	}
	return ms
}

// fill sends n messages.
func fill(t testing.TB, q *Queue, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		if err := q.Send(context.Background(), messages(from, min(1000, n-from))...); err != nil {
			t.Fatal(err)
		}
	}
}

func ackAll(t testing.TB, q *Queue, ds []driver.Delivery) {
	t.Helper()
	ss := make([]driver.Settlement, len(ds))
	for i := range ds {
		ss[i].Receipt = ds[i].Receipt
	}
	out, err := q.Settle(context.Background(), ss...)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o != driver.Applied {
			t.Fatalf("ack of %q returned %v", ds[i].ID, o)
		}
	}
}

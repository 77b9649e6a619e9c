package mysql

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestReceive_ReadsNoDelayed: a look at a queue reads what is due, and not each message that is delayed or in flight.
func TestReceive_ReadsNoDelayed(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{MaxConns: 1})
	q := db.Queue("orders")
	ms := make([]driver.Message, 2000)
	for i := range ms {
		ms[i].Delay = time.Hour
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	read := func() (sum int) {
		rows, err := db.SQL().QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_icp_attempts'")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var name string
			var n int
			if err := rows.Scan(&name, &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	before := read()
	if out, _, err := q.take(t.Context(), 10); err != nil || len(out) > 0 {
		t.Fatalf("%d deliveries, %v", len(out), err)
	}
	if n := read() - before; n > 1000 {
		t.Errorf("a look at a queue without messages that are due read %d rows", n)
	}
}

package sqlite

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM44_PositionsRepeat: the file was replaced by an older backup below a process that runs on, and new messages get the
// positions of those that are not in it. What is left of the old deliveries must not touch them.
func TestFM44_PositionsRepeat(t *testing.T) {
	for name, lost := range map[string]func(t *testing.T, q *Queue, r any){
		"ack": func(t *testing.T, q *Queue, r any) { settle(t, q, driver.Lost, driver.Settlement{Receipt: r}) },
		"return": func(t *testing.T, q *Queue, r any) {
			settle(t, q, driver.Lost, driver.Settlement{Receipt: r, Action: driver.Retry})
		},
		"extend": func(t *testing.T, q *Queue, r any) {
			if o := must(q.Extend(t.Context(), time.Hour, r))(t); o[0] != driver.Lost {
				t.Errorf("extended: %v", o[0])
			}
		},
	} {
		for kind, m := range map[string]driver.Message{"stream": {}, "timed": {Group: "g"}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				db := openFor(t, Options{})
				q := db.Queue("q")
				send(t, q, m)
				old := now(t, q, 1)[0]
				// The backup is from before the message.
				for _, sql := range []string{
					"DELETE FROM semel_stream", "DELETE FROM semel_timed", "DELETE FROM semel_flight", "DELETE FROM semel_queue",
				} {
					if _, err := db.SQL().Exec(sql); err != nil {
						t.Fatal(err)
					}
				}
				m.ID = "new"
				send(t, q, m)
				fresh := now(t, q, 1)[0]
				if fresh.Receipt.(*receipt).Pos != old.Receipt.(*receipt).Pos {
					t.Fatal("the position does not repeat: the test does not see the case")
				}
				lost(t, q, old.Receipt)
				settle(t, q, driver.Applied, driver.Settlement{Receipt: fresh.Receipt, Action: driver.Retry})
				if got := now(t, q, 1); len(got) != 1 || got[0].ID != "new" {
					t.Errorf("handed out %v", ids(got))
				}
			})
		}
	}
}

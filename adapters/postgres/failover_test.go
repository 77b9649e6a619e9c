package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// These tests bring a database into the states that a failover to a standby that lags behind leaves to processes that run
// on. tests/faults does the same with two servers.

// TestFM44_PositionsRepeat: a message was lost in a failover, and a new one got its position and is in flight for the
// first time, as the old one was. What is left of the old delivery must not touch the new message.
func TestFM44_PositionsRepeat(t *testing.T) {
	for name, use := range deliveryUses {
		t.Run(name, func(t *testing.T) {
			db := openFor(t, Options{})
			q := db.Queue("q")
			send(t, q, driver.Message{ID: "old"})
			old := receive(t, q, 1)[0]
			execSQL(t, db, "DELETE FROM semel_message")
			execSQL(t, db, fmt.Sprintf("ALTER TABLE semel_message ALTER pos RESTART WITH %d", old.Receipt.(*receipt).Pos))
			send(t, q, driver.Message{ID: "new"})
			fresh := receive(t, q, 1)[0]
			if was, is := old.Receipt.(*receipt), fresh.Receipt.(*receipt); was.Pos != is.Pos || was.count != is.count {
				t.Fatalf("the position is %d and was %d: the test does not see the case", is.Pos, was.Pos)
			}
			use(t, db, old)
			if o := settle(t, q, driver.Settlement{Receipt: fresh.Receipt, Action: driver.Retry}); o != driver.Applied {
				t.Errorf("the new message is %v for its own delivery", o)
			}
			receive(t, q, 1)
		})
	}
}

// TestFM44_DeliveryOfAnotherTimeline: the standby had the delivery, but not what was completed since. The message was
// taken for a duplicate because of a record that is gone, so that its acknowledgement must not count.
func TestFM44_DeliveryOfAnotherTimeline(t *testing.T) {
	for name, use := range deliveryUses {
		t.Run(name, func(t *testing.T) {
			db := openFor(t, Options{})
			q := db.QueueWith("q", 200*time.Millisecond)
			send(t, q, driver.Message{ID: "m"})
			old := receive(t, q, 1)[0]
			execSQL(t, db, "UPDATE semel_message SET timeline = timeline - 1")
			use(t, db, old)
			if d := receive(t, q, 1)[0]; d.ID != "m" || d.Count != 2 {
				t.Errorf("received %+v", d)
			}
		})
	}
}

// deliveryUses are what a process does with a delivery; each must fail.
var deliveryUses = map[string]func(t *testing.T, db *DB, d driver.Delivery){
	"ack": func(t *testing.T, db *DB, d driver.Delivery) { lost(t, db, driver.Settlement{Receipt: d.Receipt}) },
	"return": func(t *testing.T, db *DB, d driver.Delivery) {
		lost(t, db, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
	},
	"defer": func(t *testing.T, db *DB, d driver.Delivery) {
		lost(t, db, driver.Settlement{Receipt: d.Receipt, Action: driver.Defer})
	},
	"dead letter": func(t *testing.T, db *DB, d driver.Delivery) {
		lost(t, db, driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: &driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed}})
	},
	"extend": func(t *testing.T, db *DB, d driver.Delivery) {
		if o, err := db.Queue("q").Extend(t.Context(), time.Hour, d.Receipt); err != nil || o[0] != driver.Lost {
			t.Errorf("extended: %v, %v", o, err)
		}
	},
	"commit": func(t *testing.T, db *DB, d driver.Delivery) {
		w := worksFor(t, db.Store(), "k", 1)
		w[0].Ack = &driver.Settlement{Receipt: d.Receipt}
		if o, err := db.Store().Commit(t.Context(), w...); err != nil || o[0] != driver.Applied {
			t.Errorf("committed: %v, %v", o, err)
		}
	},
}

func lost(t *testing.T, db *DB, s driver.Settlement) {
	t.Helper()
	if o := settle(t, db.Queue("q"), s); o != driver.Lost {
		t.Errorf("the settlement is %v, wanted lost", o)
	}
}

// TestFM44_QueueIsGone: the row of a queue went back with a failover, and its id is another queue's now.
func TestFM44_QueueIsGone(t *testing.T) {
	deadLetter := driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed, Message: driver.Message{Queue: "payments"}}
	for _, another := range []bool{false, true} {
		for name, use := range map[string]func(t *testing.T, db *DB, d driver.Delivery) error{
			"send": func(t *testing.T, db *DB, _ driver.Delivery) error {
				return db.Queue("payments").Send(t.Context(), driver.Message{ID: "m"}, driver.Message{ID: "n", Group: "g"})
			},
			"dead letter": func(t *testing.T, db *DB, d driver.Delivery) error {
				_, err := db.Queue("payments").Settle(t.Context(), driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: &deadLetter})
				return err
			},
			"put dead letter": func(t *testing.T, db *DB, _ driver.Delivery) error {
				return db.Queue("payments").PutDeadLetter(t.Context(), deadLetter)
			},
			"emit": func(t *testing.T, db *DB, _ driver.Delivery) error {
				w := worksFor(t, db.Store(), "k", 1)
				w[0].Emit = []driver.Message{{Queue: "payments", ID: "m"}}
				return commitAgain(t, db, w)
			},
			"dead in a commit": func(t *testing.T, db *DB, d driver.Delivery) error {
				w := worksFor(t, db.Store(), "k", 1)
				w[0].Ack = &driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: &deadLetter}
				return commitAgain(t, db, w)
			},
		} {
			t.Run(fmt.Sprintf("%s/another=%v", name, another), func(t *testing.T) {
				db := openFor(t, Options{})
				send(t, db.Queue("payments"), driver.Message{ID: "first"})
				first := receive(t, db.Queue("payments"), 1)[0]
				execSQL(t, db, "DELETE FROM semel_message")
				execSQL(t, db, "DELETE FROM semel_queue")
				if another {
					execSQL(t, db, "ALTER TABLE semel_queue ALTER id RESTART WITH 1")
					send(t, openAgain(t, db).Queue("audit"), driver.Message{ID: "audit"})
				}
				if err := use(t, db, first); err != nil {
					t.Fatal(err)
				}
				for _, d := range receiveNow(t, db.Queue("audit")) {
					if d.ID != "audit" {
						t.Errorf("queue audit has %q", d.ID)
					}
				}
				st, err := openAgain(t, db).Queue("payments").Stats(t.Context())
				if err != nil || st.Visible+st.DeadLetters == 0 {
					t.Errorf("queue payments has %+v, %v", st, err)
				}
			})
		}
	}
}

// commitAgain commits, and repeats once what certainly was not committed, as the engine does.
func commitAgain(t *testing.T, db *DB, w []driver.Work) error {
	_, err := db.Store().Commit(t.Context(), w...)
	var item *driver.ItemError
	if errors.Is(err, driver.ErrNotCommitted) && !errors.As(err, &item) {
		_, err = db.Store().Commit(t.Context(), w...)
	}
	return err
}

func receiveNow(t *testing.T, q *Queue) []driver.Delivery {
	t.Helper()
	ds, _, err := q.take(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// TestFM44_HistoryChanges: whatever this process remembers of the server is tied to its history, which ends with the
// server's process.
func TestFM44_HistoryChanges(t *testing.T) {
	db := queueDB(t, Options{})
	q := db.Queue("q")
	send(t, q, driver.Message{ID: "m"})
	receive(t, q, 1)
	before := db.Store().History()
	send(t, q, driver.Message{ID: "n"})
	receive(t, q, 1)
	db.pool.Reset()
	settled(t, db.cursor("q"))
	send(t, q, driver.Message{ID: "o"})
	receive(t, q, 1)
	if now := db.Store().History(); now != before {
		t.Errorf("the history was %d and is %d, and the server is the same", before, now)
	}
	lookFromTheBeginningLater(t, db.cursor("q"))
	if at, _ := db.cursor("q").begin(before); at == nil {
		t.Fatal("the place in the index is not remembered: the test does not see it")
	}
	db.history.heard(time.Now()) // as from a server that was started now
	if now := db.Store().History(); now == before {
		t.Errorf("the history is %d as before", now)
	}
	if at, _ := db.cursor("q").begin(db.history.now()); at != nil {
		t.Error("the place in the index is remembered of another history")
	}
	db.history.heard(time.Time{})
	changed := db.Store().History()
	receiveNow(t, q) // hears of the server that there is
	if now := db.Store().History(); now == changed {
		t.Error("receiving does not tell that the server is another one")
	}
}

// settled waits until nothing is done beside receiving: at its end the place in the index is forgotten.
func settled(t *testing.T, f *cursor) {
	t.Helper()
	eventually(t, "end the shortening of holds", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sound && !f.shortening
	})
}

// lookFromTheBeginningLater lets no look from the beginning be due, however slow this machine is.
func lookFromTheBeginningLater(t *testing.T, f *cursor) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole, f.took = time.Now().Add(time.Hour), wholeMax
}

// TestShortenIsNoCondition: a backlog that cannot be looked through in the time that a statement has does not keep
// anybody from receiving, and is looked through in steps.
func TestShortenIsNoCondition(t *testing.T) {
	db := queueDB(t, Options{})
	q := db.Queue("q")
	const n = 150_000
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	load(t, q, idOf(t, q), n, "now")
	load(t, q, idOf(t, q), 4*shortenStep, "later")
	execSQL(t, db, `UPDATE semel_message SET due_at = due_at + interval '1 hour' WHERE due_at > now() + interval '10 minutes'`)
	// The limit is a third of what all of it takes on this machine, and fifty times what a step takes.
	began := time.Now()
	tx := beginOwn(t, db)
	if _, err := tx.Exec(t.Context(), sqlShorten, "q", false, nil, 0, 2*n); err != nil {
		t.Fatal(err)
	}
	limit := strconv.FormatInt(max(time.Since(began).Milliseconds()/3, 1), 10)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	limited := openURL(t, withParam(t, db.pool.Config().ConnString(), "statement_timeout", limit), Options{})
	q = limited.Queue("q")
	eventually(t, "receive 100 messages", func() bool { // a look on a machine that stands still may take too long, too
		ds, err := q.take1(100)
		if err != nil && code(err) != "57014" {
			t.Fatal(err)
		}
		return len(ds) == 100
	})
	f := limited.cursor("q")
	sound := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sound
	}
	eventually(t, "shorten the holds", func() bool {
		f.mu.Lock()
		f.again = time.Time{} // after a step that took too long it rests for a minute
		f.mu.Unlock()
		limited.wake.shorten("q", f)
		return sound()
	})
	left := 0
	err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM semel_message WHERE due_at > now() + interval '61 minutes'").Scan(&left)
	if err != nil || left > 0 {
		t.Errorf("%d messages are due later than they were asked to, %v", left, err)
	}
}

// TestShortenNeedNotSucceed: receiving goes on where holds cannot be shortened.
func TestShortenNeedNotSucceed(t *testing.T) {
	db := queueDB(t, Options{})
	execSQL(t, db, "DROP FUNCTION semel_shorten")
	send(t, db.Queue("q"), driver.Message{ID: "m"})
	receive(t, db.Queue("q"), 1)
}

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

func send(t testing.TB, q *Queue, ms ...driver.Message) {
	t.Helper()
	if err := q.Send(context.Background(), ms...); err != nil {
		t.Fatal(err)
	}
}

// receive receives n messages within a while.
func receive(t testing.TB, q *Queue, n int) []driver.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out []driver.Delivery
	for len(out) < n {
		ds, err := q.Receive(ctx, n-len(out))
		if err != nil {
			t.Fatalf("received %d of %d: %v", len(out), n, err)
		}
		out = append(out, ds...)
	}
	return out
}

// none makes sure that nothing is deliverable.
func none(t testing.TB, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if ds, err := q.Receive(ctx, 10); len(ds) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("received %v, %v, wanted nothing", ds, err)
	}
}

func settle(t testing.TB, q *Queue, s driver.Settlement) driver.Outcome {
	t.Helper()
	out, err := q.Settle(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// TestEachIsDeliveredOnce: eight receivers of four processes take 20,000 messages; none is handed out twice while its
// visibility lasts.
func TestEachIsDeliveredOnce(t *testing.T) {
	n := 20_000 / semeltest.Sampled(4)
	first := queueDB(t, Options{MaxConns: 3, Visibility: 10 * time.Minute})
	dbs := []*DB{first, openAgain(t, first), openAgain(t, first), openAgain(t, first)}
	fill(t, first.Queue("q"), n/2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var got sync.Map
	var count atomic.Int64
	var all sync.WaitGroup
	all.Go(func() { // the other half comes while they receive
		for from := n / 2; from < n; from += 100 {
			if err := first.Queue("q").Send(ctx, messages(from, 100)...); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 8 {
		q := dbs[i%len(dbs)].Queue("q")
		all.Go(func() {
			for {
				ds, err := q.Receive(ctx, 50+10*i)
				if err != nil {
					if int(count.Load()) < n {
						t.Errorf("receiver %d: %v", i, err)
					}
					return
				}
				for _, d := range ds {
					if d.Count != 1 {
						t.Errorf("%s was handed out %d times", d.ID, d.Count)
					}
					if _, twice := got.LoadOrStore(d.ID, true); twice {
						t.Errorf("%s was handed out twice", d.ID)
					}
				}
				ackAll(t, q, ds)
				if int(count.Add(int64(len(ds)))) >= n {
					cancel()
				}
			}
		})
	}
	all.Wait()
	if c := int(count.Load()); c != n {
		t.Errorf("%d messages of %d came", c, n)
	}
}

// TestI22GroupsStayInOrder: senders and settlers work on the same groups at once. Each sender's messages come in its
// order, positions grow, one message of a group is out at a time, and no follower is forgotten.
func TestI22GroupsStayInOrder(t *testing.T) {
	const groups, senders = 3, 4
	each := 150 / semeltest.Sampled(3)
	first := queueDB(t, Options{MaxConns: 6})
	dbs := []*DB{first, openAgain(t, first)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var work sync.WaitGroup
	for s := range senders {
		q := dbs[s%2].Queue("q")
		work.Go(func() {
			for i := range each {
				var ms []driver.Message
				for g := range groups { // several groups in one transaction, each sender in another order
					g = (g + s) % groups
					ms = append(ms, driver.Message{ID: fmt.Sprint(s, " ", i), Group: fmt.Sprint("g-", g)})
				}
				if err := q.Send(ctx, ms...); err != nil {
					t.Errorf("sender %d: %v", s, err)
					return
				}
			}
		})
	}
	var mu sync.Mutex
	out, last, seen := map[string]bool{}, map[string]int64{}, map[string]int{}
	count := 0
	check := func(d *driver.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		var s, i int
		fmt.Sscan(d.ID, &s, &i)
		pos, sender := d.Receipt.(*receipt).Pos, fmt.Sprint(d.Group, " ", s)
		if out[d.Group] {
			t.Errorf("%s of %s came while another one is out", d.ID, d.Group)
		}
		if pos <= last[d.Group] {
			t.Errorf("%s of %s came at position %d, after %d", d.ID, d.Group, pos, last[d.Group])
		}
		if seen[sender] != i {
			t.Errorf("number %d of sender %d came in %s, wanted %d", i, s, d.Group, seen[sender])
		}
		out[d.Group], last[d.Group], seen[sender] = true, pos, i+1
		count++
	}
	for r := range 4 {
		q := dbs[r%2].Queue("q")
		work.Go(func() {
			for {
				ds, err := q.Receive(ctx, 2)
				if err != nil {
					return
				}
				for i := range ds {
					check(&ds[i])
					mu.Lock()
					delete(out, ds[i].Group)
					mu.Unlock()
					if o, err := q.Settle(context.Background(), driver.Settlement{Receipt: ds[i].Receipt}); err != nil || o[0] != driver.Applied {
						t.Errorf("ack of %q returned %v, %v", ds[i].ID, o, err)
					}
				}
				mu.Lock()
				if count == groups*senders*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if count != groups*senders*each {
		s, err := first.Queue("q").Stats(context.Background())
		t.Errorf("%d messages of %d came; left are %+v, %v", count, groups*senders*each, s, err)
	}
}

// TestFollowerIsNotForgotten walks through the race that addLocks describes: the follower is sent before the head is
// settled, and commits after it.
func TestFollowerIsNotForgotten(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q")
	send(t, q, driver.Message{ID: "head", Group: "g"})
	head := receive(t, q, 1)[0]
	tx, err := q.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := q.SendTx(t.Context(), tx, driver.Message{ID: "follower", Group: "g"}); err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		_, err := q.Settle(context.Background(), driver.Settlement{Receipt: head.Receipt})
		settled <- err
	}()
	select {
	case err := <-settled:
		t.Fatalf("the head was settled (%v) while a follower is being sent: it cannot know of it", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if d := receive(t, q, 1)[0]; d.ID != "follower" {
		t.Errorf("received %q", d.ID)
	}
}

// TestGroupsNeedReadCommitted: with an older snapshot the lock of a group does not help.
func TestGroupsNeedReadCommitted(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q")
	for _, group := range []string{"", "g"} {
		tx, err := q.db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
			t.Fatal(err)
		}
		err = q.SendTx(t.Context(), tx, driver.Message{Group: group})
		if (err != nil) != (group != "") {
			t.Errorf("group %q: %v", group, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatMessagesMayHold: ids and groups are any bytes, headers are UTF-8 with NUL; others are refused with an error.
func TestWhatMessagesMayHold(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q\u00fc 'x'")
	m := driver.Message{
		ID: "\x00\xff'", Group: "\xfe\x00", Headers: map[string]string{"a\x00b": "\x00ü\u2028", "": "x"}, Body: []byte{0, 255},
	}
	send(t, q, m)
	d := receive(t, q, 1)[0]
	if d.ID != m.ID || d.Group != m.Group || !bytes.Equal(d.Body, m.Body) || d.Headers["a\x00b"] != m.Headers["a\x00b"] || len(d.Headers) != 2 {
		t.Errorf("received %+v", d.Message)
	}
	for name, bad := range map[string]driver.Message{
		"header value": {Headers: map[string]string{"h": "\xff"}}, "header name": {Headers: map[string]string{"\xff": "h"}},
	} {
		err := q.Send(t.Context(), driver.Message{ID: "good"}, bad)
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 1 || !strings.Contains(err.Error(), "not UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := q.db.Queue("a\x00b").Send(t.Context(), driver.Message{}); err == nil || !strings.Contains(err.Error(), "queue name") {
		t.Errorf("a queue name with NUL: %v", err)
	}
	settle(t, q, driver.Settlement{Receipt: d.Receipt})
	none(t, q) // "good" was not sent either
}

// TestReceiveBytes: one Receive takes no more bodies than the option says, but at least one message.
func TestReceiveBytes(t *testing.T) {
	q := queueDB(t, Options{ReceiveBytes: 1000}).Queue("q")
	for _, n := range []int{400, 400, 400, 5000, 1} {
		send(t, q, driver.Message{Body: make([]byte, n)})
	}
	var sizes []string
	for range 4 {
		var one []string
		ds, err := q.Receive(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			one = append(one, fmt.Sprint(len(d.Body)))
		}
		sizes = append(sizes, strings.Join(one, "+"))
	}
	if got := strings.Join(sizes, " "); got != "400+400 400 5000 1" {
		t.Errorf("received %s", got)
	}
}

// TestFM43ClockStepsBack: the server's clock was an hour ahead when a message was handed out, and another one sent. They
// do not wait for that hour, neither in a process that begins after the step nor in one that was there.
func TestFM43ClockStepsBack(t *testing.T) {
	for _, process := range []string{"new", "old"} {
		t.Run(process, func(t *testing.T) {
			db := queueDB(t, Options{})
			send(t, db.Queue("q"), driver.Message{ID: "flies"})
			receive(t, db.QueueWith("q", 300*time.Millisecond), 1)
			send(t, db.Queue("q"), driver.Message{ID: "later", Delay: time.Hour}, driver.Message{ID: "waits"})
			_, err := db.pool.Exec(t.Context(), `UPDATE semel_message SET due_at = due_at + interval '1 hour',
				until = until + interval '1 hour'`)
			if err != nil {
				t.Fatal(err)
			}
			if process == "new" {
				db = openAgain(t, db)
			} else {
				f := db.cursor("q")
				f.clock = f.clock.Add(time.Hour)
			}
			ids := map[string]bool{}
			for _, d := range receive(t, db.Queue("q"), 2) {
				ids[d.ID] = true
			}
			if !ids["flies"] || !ids["waits"] {
				t.Errorf("received %v", ids)
			}
			none(t, db.Queue("q")) // the one that was delayed stays delayed
		})
	}
}

// TestPurgeLetsLaterFollowersGo: the head of a group is purged, a follower that is sent meanwhile is not.
func TestPurgeLetsLaterFollowersGo(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q")
	send(t, q, driver.Message{ID: "head", Group: "g"})
	fill(t, q, purgeStep+100)
	send(t, q, driver.Message{ID: "second", Group: "g"})
	end := int64(0)
	if err := q.db.pool.QueryRow(t.Context(), sqlPurgeEnd).Scan(&end); err != nil {
		t.Fatal(err)
	}
	send(t, q, driver.Message{ID: "third", Group: "g"})
	total := int64(0)
	for after := int64(0); after < end; {
		n, last, err := q.purge(t.Context(), after, end)
		if err != nil {
			t.Fatal(err)
		}
		total, after = total+n, last
	}
	if total != purgeStep+102 {
		t.Errorf("purged %d", total)
	}
	if d := receive(t, q, 1)[0]; d.ID != "third" {
		t.Errorf("received %q", d.ID)
	}
}

func TestQueues(t *testing.T) {
	db := queueDB(t, Options{})
	if err := db.Queue("b").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, db.Queue("a"), driver.Message{})
	none(t, db.Queue("never made"))
	for range 2 {
		if err := db.Queue("b").Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := db.Queues(t.Context()); err != nil || strings.Join(names, " ") != "a b" {
		t.Errorf("queues are %q, %v", names, err)
	}
	if f := db.Queue("a").Features(); !f.Durable || len(f.Caveats) > 0 || f.Kind != "postgres" {
		t.Errorf("features are %+v", f)
	}
}

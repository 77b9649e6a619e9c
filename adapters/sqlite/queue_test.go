package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// openFake opens a database on a clock of its own.
func openFake(t *testing.T) (*DB, *fakeClock) {
	c := newClock()
	return openFor(t, Options{clock: c.now}), c
}

func send(t *testing.T, q *Queue, m ...driver.Message) {
	t.Helper()
	if err := q.Send(t.Context(), m...); err != nil {
		t.Fatal(err)
	}
}

// now receives what is deliverable at once.
func now(t *testing.T, q *Queue, limit int) []driver.Delivery {
	t.Helper()
	return must(q.take(t.Context(), limit))(t)
}

func ids(d []driver.Delivery) (out []string) {
	for i := range d {
		out = append(out, d[i].ID)
	}
	return out
}

func settle(t *testing.T, q *Queue, want driver.Outcome, s ...driver.Settlement) {
	t.Helper()
	for i, o := range must(q.Settle(t.Context(), s...))(t) {
		if o != want {
			t.Fatalf("settlement %d: %v, want %v", i, o, want)
		}
	}
}

func numbered(n int) (out []driver.Message) {
	for i := range n {
		out = append(out, driver.Message{ID: fmt.Sprintf("%03d", i)})
	}
	return out
}

func TestRunsAreSettledInAnyOrder(t *testing.T) {
	db, clock := openFake(t)
	q := db.Queue("q")
	send(t, q, numbered(20)...)
	d := now(t, q, 20)
	if len(d) != 20 || d[0].ID != "000" || d[19].ID != "019" {
		t.Fatal(ids(d))
	}
	acks := func(at ...int) (s []driver.Settlement) {
		for _, i := range at {
			s = append(s, driver.Settlement{Receipt: d[i].Receipt})
		}
		return s
	}
	settle(t, q, driver.Applied, acks(7, 3, 5, 4)...)
	settle(t, q, driver.Applied, acks(2, 3, 4, 5, 6, 7, 8)...) // some of them again
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[10].Receipt, Action: driver.Retry, After: time.Hour})
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[11].Receipt, Action: driver.Defer})
	if out := must(q.Extend(t.Context(), time.Hour, d[12].Receipt))(t); out[0] != driver.Applied {
		t.Fatal(out)
	}
	settle(t, q, driver.Applied, acks(9, 12, 13)...) // one of them has left the run
	settle(t, q, driver.Lost, acks(10)...)
	if got := ids(now(t, q, 20)); !slices.Equal(got, []string{"011"}) {
		t.Fatalf("deferred: %v", got)
	}
	clock.advance(31 * time.Second) // the rest of the run has expired, 011 too
	again := now(t, q, 20)
	if got := ids(again); len(got) != 9 || again[0].Count < 2 {
		t.Fatalf("after the visibility: %v, count %d", got, again[0].Count)
	}
	settle(t, q, driver.Lost, acks(0)...) // handed out again
	for i := range again {
		settle(t, q, driver.Applied, driver.Settlement{Receipt: again[i].Receipt})
	}
	clock.advance(time.Hour)
	last := now(t, q, 20)
	if got := ids(last); !slices.Equal(got, []string{"010"}) || last[0].Count != 2 {
		t.Fatalf("retried: %v", got)
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: last[0].Receipt})
	for _, table := range []string{"semel_stream", "semel_timed", "semel_flight", "semel_body"} {
		if n := count(t, db, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

func TestFM18_LateAckOfAnExpiredDelivery(t *testing.T) {
	db, clock := openFake(t)
	q := db.Queue("q")
	send(t, q, numbered(2)...)
	d := now(t, q, 2)
	clock.advance(time.Minute)
	if st := must(q.Stats(t.Context()))(t); st.Visible != 2 || st.InFlight != 0 {
		t.Fatalf("stats %+v", st)
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[0].Receipt}) // nobody has it: still good
	if got := ids(now(t, q, 5)); !slices.Equal(got, []string{"001"}) {
		t.Fatal(got)
	}
	settle(t, q, driver.Lost, driver.Settlement{Receipt: d[1].Receipt})
}

// TestExtendWholeRun: a heartbeat of a whole batch writes one row.
func TestExtendWholeRun(t *testing.T) {
	db, clock := openFake(t)
	q := db.Queue("q")
	send(t, q, numbered(10)...)
	d := now(t, q, 10)
	receipts := []any{}
	for i := range d {
		receipts = append(receipts, d[i].Receipt)
	}
	for range 3 {
		clock.advance(20 * time.Second)
		for i, o := range must(q.Extend(t.Context(), 30*time.Second, receipts...))(t) {
			if o != driver.Applied {
				t.Fatalf("extend %d: %v", i, o)
			}
		}
	}
	if n := count(t, db, "SELECT count(*) FROM semel_timed"); n != 0 {
		t.Errorf("%d messages left the run", n)
	}
	if got := now(t, q, 10); len(got) != 0 {
		t.Fatalf("handed out %v while extended", ids(got))
	}
	clock.advance(31 * time.Second)
	if got := now(t, q, 10); len(got) != 10 {
		t.Fatalf("after the extension: %v", ids(got))
	}
	for i, o := range must(q.Extend(t.Context(), time.Minute, receipts...))(t) {
		if o != driver.Lost {
			t.Fatalf("late extend %d: %v", i, o)
		}
	}
}

// TestGroups works random groups with retries, deferrals and lost deliveries: a later message of a group never comes
// before the earlier one is settled.
func TestI22_GroupsKeepTheirOrder(t *testing.T) {
	db, clock := openFake(t)
	q := db.Queue("q")
	rnd := rand.New(rand.NewPCG(3, 4))
	const groups, each = 7, 12
	for i := range each {
		for g := range groups {
			m := driver.Message{ID: fmt.Sprintf("%d-%02d", g, i), Group: fmt.Sprint(g)}
			if rnd.IntN(4) == 0 {
				m.Delay = time.Duration(rnd.IntN(90)) * time.Second
			}
			send(t, q, m, driver.Message{ID: fmt.Sprintf("x-%d-%d", g, i)})
		}
	}
	next := make([]int, groups)
	done, loose := 0, 0
	for round := 0; done < groups*each || loose < groups*each; round++ {
		if round > 10000 {
			t.Fatalf("stuck at %v", next)
		}
		for _, d := range now(t, q, 1+rnd.IntN(10)) {
			if d.Group != "" {
				g := int(d.Group[0] - '0')
				if want := fmt.Sprintf("%d-%02d", g, next[g]); d.ID != want {
					t.Fatalf("group %d delivers %s, want %s", g, d.ID, want)
				}
			}
			switch rnd.IntN(4) {
			case 0: // lost: its visibility ends by itself
			case 1:
				settle(t, q, driver.Applied, driver.Settlement{
					Receipt: d.Receipt, Action: driver.Retry, After: time.Duration(rnd.IntN(20)) * time.Second,
				})
			default:
				settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
				if d.Group == "" {
					loose++
				} else {
					next[d.Group[0]-'0']++
					done++
				}
			}
		}
		clock.advance(time.Duration(rnd.IntN(5)) * time.Second)
	}
	if st := must(q.Stats(t.Context()))(t); !st.Empty() {
		t.Errorf("stats %+v", st)
	}
}

func TestLongBodies(t *testing.T) {
	db, _ := openFake(t)
	q := db.QueueWith("q", 0)
	db.o.ReceiveBytes = 40 << 20
	var sent []driver.Message
	for i, n := range []int{0, 1, inlineBody, inlineBody + 1, 100_000, 33 << 20, 5} {
		body := bytes.Repeat([]byte{byte(i)}, n)
		sent = append(sent, driver.Message{ID: fmt.Sprint(i), Body: body})
	}
	sent = append(sent, driver.Message{ID: "7", Body: make([]byte, 20<<20)})
	send(t, q, sent...)
	first := now(t, q, 100)
	if len(first) != 7 {
		t.Fatalf("one Receive took %d messages, want those under ReceiveBytes", len(first))
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: first[5].Receipt, Action: driver.Retry})
	rest := now(t, q, 100)
	if got := ids(rest); !slices.Equal(got, []string{"7"}) && !slices.Equal(got, []string{"5"}) {
		t.Fatalf("then %v", got)
	}
	rest = append(rest, now(t, q, 100)...)
	for _, d := range append(first[:5:5], append(rest, first[6])...) {
		if i := d.ID[0] - '0'; !bytes.Equal(d.Body, sent[i].Body) {
			t.Errorf("message %s has another body", d.ID)
		}
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
	}
	if n := count(t, db, "SELECT count(*) FROM semel_body"); n != 0 {
		t.Errorf("%d bodies are left", n)
	}
}

// TestFM43_QueueClockStepsBack: nothing stays invisible for longer than was asked for (law 7).
func TestFM43_QueueClockStepsBack(t *testing.T) {
	db, clock := openFake(t)
	q := db.Queue("q")
	send(t, q, numbered(2)...)
	send(t, q, driver.Message{ID: "delayed", Delay: 10 * time.Second})
	d := now(t, q, 2)
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[1].Receipt, Action: driver.Retry, After: 10 * time.Second})
	clock.advance(-24 * time.Hour)
	if got := now(t, q, 10); len(got) != 0 {
		t.Fatalf("handed out %v", ids(got))
	}
	clock.advance(31 * time.Second)
	got := ids(now(t, q, 10))
	slices.Sort(got)
	if !slices.Equal(got, []string{"000", "001", "delayed"}) {
		t.Fatalf("a day behind: %v", got)
	}
}

func TestDeadLettersSurviveStaleReceipts(t *testing.T) {
	db, clock := openFake(t)
	q, ctx := db.Queue("q"), t.Context()
	send(t, q, driver.Message{ID: "m", Body: []byte("body"), Headers: map[string]string{"a": "b"}, Group: "g"})
	first := now(t, q, 1)
	clock.advance(time.Minute)
	second := now(t, q, 1)
	deadLetter := driver.DeadLetter{
		ID: "L1", Kind: driver.DeadLetterFailed, Reason: "boom", Key: driver.Key{Consumer: "c", Tenant: "t", Raw: "k\x00\xff"},
		Generation: 2, Token: 9, Attempts: 3, Message: first[0].Message, FirstReceived: clock.now(),
	}
	settle(t, q, driver.Lost, driver.Settlement{Receipt: first[0].Receipt, Action: driver.Dead, DeadLetter: &deadLetter})
	settle(t, q, driver.Applied, driver.Settlement{Receipt: second[0].Receipt, Action: driver.Dead, DeadLetter: &deadLetter})
	all := must(q.DeadLetters(ctx, 0))(t)
	if len(all) != 1 {
		t.Fatalf("%d dead letters", len(all))
	}
	l := all[0]
	if l.Key != deadLetter.Key || l.Token != 9 || l.Generation != 2 || l.Attempts != 3 || l.Reason != "boom" || l.Kind != driver.DeadLetterFailed ||
		string(l.Message.Body) != "body" || l.Message.Header("A") != "b" || l.Message.Group != "g" || l.Message.Queue != "q" ||
		!l.FirstReceived.Equal(deadLetter.FirstReceived) || !l.DeadAt.Equal(clock.now()) {
		t.Errorf("dead letter %+v", l)
	}
	if st := must(q.Stats(ctx))(t); !st.Empty() || st.DeadLetters != 1 {
		t.Errorf("stats %+v", st)
	}
	// A dead letter is closed with the ack of whatever delivery finds the truth.
	send(t, q, driver.Message{ID: "m2"})
	d := now(t, q, 1)
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[0].Receipt, Close: "L1"})
	if _, ok, err := q.DeadLetter(ctx, "L1"); ok || err != nil {
		t.Errorf("dead letter is still there: %v", err)
	}
}

func TestPurge(t *testing.T) {
	db, _ := openFake(t)
	q, ctx := db.Queue("q"), t.Context()
	other := db.Queue("other")
	send(t, other, driver.Message{ID: "stays"})
	send(t, q, numbered(5000)...)
	d := now(t, q, 100)
	send(t, q, driver.Message{ID: "g1", Group: "g"}, driver.Message{ID: "g2", Group: "g"}, driver.Message{ID: "l", Body: make([]byte, 9000)})
	if n := must(q.Purge(ctx))(t); n != 5003 {
		t.Errorf("purged %d", n)
	}
	settle(t, q, driver.Lost, driver.Settlement{Receipt: d[0].Receipt})
	for _, table := range []string{"semel_timed", "semel_flight", "semel_body"} {
		if n := count(t, db, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	send(t, q, driver.Message{ID: "new"}, driver.Message{ID: "g3", Group: "g"})
	if got := ids(now(t, q, 10)); len(got) != 2 {
		t.Errorf("after the purge: %v", got)
	}
	if got := ids(now(t, other, 10)); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("other queue: %v", got)
	}
}

func TestStatsAndPeek(t *testing.T) {
	db, clock := openFake(t)
	q, ctx := db.Queue("q"), t.Context()
	if st := must(q.Stats(ctx))(t); !st.Empty() {
		t.Fatalf("absent queue %+v", st)
	}
	send(t, q, numbered(6)...)
	send(t, q, driver.Message{ID: "later", Delay: time.Hour, Body: make([]byte, 5000)},
		driver.Message{ID: "h", Group: "g"}, driver.Message{ID: "f", Group: "g"})
	clock.advance(5 * time.Second)
	d := now(t, q, 3)
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d[0].Receipt, Action: driver.Retry, After: time.Minute})
	st := must(q.Stats(ctx))(t)
	if st.Visible+st.InFlight+st.Delayed != 9 || st.InFlight != 2 || st.Delayed != 2 || st.Oldest != 5*time.Second {
		t.Errorf("stats %+v", st)
	}
	p := must(q.Peek(ctx, 100))(t)
	if got := ids(p); !slices.Equal(got, []string{"000", "001", "002", "003", "004", "005", "later", "h", "f"}) {
		t.Errorf("peek %v", got)
	}
	if p[0].Count != 1 || p[5].Count != 0 || len(p[6].Body) != 5000 || p[7].Group != "g" || p[0].Receipt != nil {
		t.Errorf("peek %+v", p)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_messages WHERE queue = 'q'"); n != 9 {
		t.Errorf("view has %d rows", n)
	}
}

func TestReceiveBlocks(t *testing.T) {
	db := open(t)
	q := db.Queue("q")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if d, err := q.Receive(ctx, 1); err == nil {
		t.Fatalf("received %v", ids(d))
	}
	got := make(chan []driver.Delivery)
	go func() {
		d, _ := q.Receive(t.Context(), 5)
		got <- d
	}()
	waitFor(t, func() bool { return db.watch.waiters.Queues() != nil })
	begin := time.Now()
	send(t, q, driver.Message{ID: "soon", Delay: 30 * time.Millisecond})
	if d := <-got; len(d) != 1 || time.Since(begin) < 30*time.Millisecond || time.Since(begin) > 30*time.Second {
		t.Fatalf("delayed message after %v", time.Since(begin))
	}
	if len(db.watch.waiters.Queues()) != 0 {
		t.Error("a waiter is left behind")
	}
}

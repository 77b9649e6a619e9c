package semeltest

import (
	"slices"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
)

// testDeadLetterPages lists dead letters by page. While pages are read, one is deleted and one is added.
func testDeadLetterPages(q *queueBench) {
	dlq, ok := q.dlq()
	if !ok {
		return
	}
	pager, ok := driver.As[driver.DeadLetterPager](dlq)
	if !ok {
		q.t.Log("left out: the dead letters are no driver.DeadLetterPager")
		return
	}
	put := func(id string, kind driver.DeadLetterKind, consumer string) {
		q.t.Helper()
		l := q.deadLetter(id, driver.Message{ID: "m-" + id, Body: []byte(id), Headers: map[string]string{"h": id}})
		l.Kind, l.Key.Consumer = kind, consumer
		if id > "2" {
			l.Reason = "order " + id + " failed"
		}
		if err := dlq.PutDeadLetter(q.ctx(), *l); err != nil {
			q.t.Fatalf("put dead letter %q: %v", id, err)
		}
		q.pass(3 * time.Millisecond)
	}
	page := func(f driver.DeadLetterFilter) (ids []string, next driver.Cursor) {
		q.t.Helper()
		ls, next, err := pager.PageDeadLetters(q.ctx(), f)
		if err != nil {
			q.t.Fatalf("dead letters %+v: %v", f, err)
		}
		for _, l := range ls {
			if !f.Selects(&l) || l.Message.ID != "m-"+l.ID || l.Reason == "" || l.DeadAt.IsZero() || len(l.Message.Body)+len(l.Message.Headers) > 0 {
				q.t.Errorf("dead letters %+v: one is %+v", f, l)
			}
			ids = append(ids, l.ID)
		}
		if len(ids) > f.Limit {
			q.t.Errorf("dead letters %+v: %d in a page", f, len(ids))
		}
		return ids, next
	}
	all := func(what string, f driver.DeadLetterFilter, want ...string) {
		q.t.Helper()
		var got []string
		for range len(want) + 3 {
			ids, next := page(f)
			got = append(got, ids...)
			if f.After = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			q.t.Errorf("dead letters %s: %q, wanted %q", what, got, want)
		}
	}
	for i := range 6 {
		kind := driver.DeadLetterFailed
		if i%3 == 0 {
			kind = driver.DeadLetterUncertain
		}
		put(strconv.Itoa(i), kind, []string{"a", "b"}[i%2])
	}
	all("of a class of reasons", driver.DeadLetterFilter{Class: "order # failed", Limit: 2}, "3", "4", "5")
	for limit := 1; limit < 8; limit++ {
		all("by page", driver.DeadLetterFilter{Limit: limit}, "0", "1", "2", "3", "4", "5")
		all("newest first", driver.DeadLetterFilter{Newest: true, Limit: limit}, "5", "4", "3", "2", "1", "0")
		all("of a consumer", driver.DeadLetterFilter{Consumer: "b", Limit: limit}, "1", "3", "5")
		all("of a kind", driver.DeadLetterFilter{Kind: driver.DeadLetterUncertain, Limit: limit}, "0", "3")
	}
	all("of nobody", driver.DeadLetterFilter{Consumer: "nobody", Limit: 2})
	for _, f := range []driver.DeadLetterFilter{{}, {Limit: 1, After: "no cursor"}} {
		if _, _, err := pager.PageDeadLetters(q.ctx(), f); err == nil {
			q.t.Errorf("dead letters %+v: no error", f)
		}
	}
	_, next := page(driver.DeadLetterFilter{Limit: 2})
	if err := dlq.DeleteDeadLetter(q.ctx(), "1"); err != nil {
		q.t.Fatal(err)
	}
	put("6", driver.DeadLetterFailed, "a")
	all("behind a deleted one", driver.DeadLetterFilter{Limit: 2, After: next}, "2", "3", "4", "5", "6")
}

// testDeadLetterGroups counts dead letters by consumer, kind and class of reason, up to a limit.
func testDeadLetterGroups(q *queueBench) {
	dlq, ok := q.dlq()
	if !ok {
		return
	}
	grouper, ok := driver.As[driver.DeadLetterGrouper](dlq)
	if !ok {
		q.t.Log("left out: the dead letters are no driver.DeadLetterGrouper")
		return
	}
	put := func(id, reason string, kind driver.DeadLetterKind, consumer string) {
		q.t.Helper()
		l := q.deadLetter(id, driver.Message{ID: "m-" + id, Body: []byte(id)})
		l.Kind, l.Key.Consumer, l.Reason = kind, consumer, reason
		if err := dlq.PutDeadLetter(q.ctx(), *l); err != nil {
			q.t.Fatalf("put dead letter %q: %v", id, err)
		}
		q.pass(3 * time.Millisecond)
	}
	groups := func(most int, want ...driver.DeadLetterGroup) {
		q.t.Helper()
		got, err := grouper.GroupDeadLetters(q.ctx(), most)
		for i := range got {
			g := &got[i]
			if g.From.IsZero() || g.Count == 1 && !g.From.Equal(g.To) || g.Count > 1 && !g.To.After(g.From) {
				q.t.Errorf("groups of %d: %d dead letters are from %v to %v", most, g.Count, g.From, g.To)
			}
			g.From, g.To = time.Time{}, time.Time{}
		}
		if err != nil || !slices.Equal(got, want) {
			q.t.Errorf("groups of %d: %+v, %v, wanted %+v", most, got, err, want)
		}
	}
	groups(10)
	put("0", "order 17: ö\x00\xff", driver.DeadLetterFailed, "a")
	put("1", "order 18: ö\x00\xff", driver.DeadLetterFailed, "a")
	put("2", "order 18: ö\x00\xff", driver.DeadLetterFailed, "b")
	put("3", "order 5: ö\x00\xff\nat line 7", driver.DeadLetterFailed, "a")
	put("4", "order 17: ö\x00\xff", driver.DeadLetterUncertain, "a")
	put("5", "", driver.DeadLetterFailed, "a")
	group := func(consumer string, kind driver.DeadLetterKind, class string, n int) driver.DeadLetterGroup {
		return driver.DeadLetterGroup{Consumer: consumer, Kind: kind, Class: class, Count: n}
	}
	const class = "order #: ö\x00\uFFFD"
	groups(10, group("a", driver.DeadLetterFailed, class, 3), group("a", driver.DeadLetterFailed, "", 1),
		group("b", driver.DeadLetterFailed, class, 1), group("a", driver.DeadLetterUncertain, class, 1))
	groups(3, group("a", driver.DeadLetterFailed, class, 2), group("b", driver.DeadLetterFailed, class, 1))
	if err := dlq.DeleteDeadLetter(q.ctx(), "0"); err != nil {
		q.t.Fatal(err)
	}
	groups(2, group("a", driver.DeadLetterFailed, class, 1), group("b", driver.DeadLetterFailed, class, 1))
}

// checkCount compares a count up to a limit with the whole one.
func checkCount(q *queueBench, all driver.QueueStats) {
	q.t.Helper()
	c, ok := driver.As[driver.QueueCounter](q.Queue)
	if !ok {
		return
	}
	total := all.Visible + all.InFlight + all.Delayed
	for _, most := range []int{1, 2, 3, 100} {
		s, err := c.CountMessages(q.ctx(), most)
		n := s.Visible + s.InFlight + s.Delayed
		if err != nil || n > total || n < min(total, int64(most)) || s.AtLeast != (total >= int64(most)) || s.Visible > all.Visible ||
			s.InFlight > all.InFlight || s.Delayed > all.Delayed || s.Oldest > 0 && n == 0 || all.Oldest >= 20*time.Millisecond && s.Oldest == 0 {
			q.t.Errorf("the count up to %d is %+v, %v, of %+v", most, s, err, all)
		}
	}
}

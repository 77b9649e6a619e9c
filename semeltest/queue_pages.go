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

package ops

import (
	"context"
	"fmt"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// unpaged lists dead letters as most brokers do: neither by page nor by group. paged has no groups.
type (
	unpaged struct{ driver.DeadLetterQueue }
	paged   struct {
		driver.DeadLetterQueue
		driver.DeadLetterPager
	}
)

// TestGroups: groups are the same however the queue lists its dead letters; only their number is bounded otherwise.
func TestGroups(t *testing.T) {
	q := memory.NewQueue("q")
	put := func(n int, consumer, reason string, kind driver.DeadLetterKind) {
		for i := range n {
			id := fmt.Sprint(consumer, kind, i)
			l := driver.DeadLetter{ID: id, Kind: kind, Reason: fmt.Sprintf(reason, i), Key: driver.Key{Consumer: consumer, Raw: id}}
			if err := q.PutDeadLetter(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(3, "c", "order %d failed", driver.DeadLetterFailed)
	put(1, "c", "timeout %d", driver.DeadLetterUncertain)
	put(2, "", "order %d failed", driver.DeadLetterFailed)
	put(PageLimit, "other", "order %d failed", driver.DeadLetterFailed)
	for name, dlq := range map[string]driver.DeadLetterQueue{"grouped": q, "paged": paged{q, q}, "unpaged": unpaged{q}} {
		g, err := Queue{DeadLetters: dlq}.Groups(context.Background(), "c")
		if err != nil || g.Total != 6 || g.More != (name == "unpaged") || len(g.Groups) != 2 || g.Groups[0].Kind != driver.DeadLetterUncertain ||
			g.Groups[1].Class != "order # failed" || g.Groups[1].Count != 5 {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		page, _, err := Queue{DeadLetters: dlq}.Page(context.Background(), driver.DeadLetterFilter{Class: "timeout #", Limit: 10})
		if err != nil || len(page) != 1 || page[0].Kind != driver.DeadLetterUncertain {
			t.Errorf("%s: a page of a class: %+v, %v", name, page, err)
		}
	}
}

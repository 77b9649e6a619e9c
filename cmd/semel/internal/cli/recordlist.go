package cli

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// The orders of records ls.
const (
	orderNewest = "newest"
	orderOldest = "oldest"
	orderAny    = "any"
)

var recordOrders = []string{orderNewest, orderOldest, orderAny}

// recordStates lists the states that a record can have.
func recordStates() (out []string) {
	for s := driver.InProgress; s <= driver.Expired; s++ {
		out = append(out, s.String())
	}
	return out
}

// listTime bounds a list whose order nobody asked for, because it reads all records.
const listTime = 30 * time.Second

// recordList is which records ls shows.
type recordList struct {
	limit int // 0 = all
	order string
	asked bool // a person asked for the order
}

// of lists the records of a filter; more reports that limit left some out.
func (r recordList) of(ctx context.Context, l *ledger, f driver.RecordFilter) (rs []driver.Record, more bool, err error) {
	if r.limit > 0 {
		f.Limit = r.limit + 1
	}
	if f.Newest = r.order == orderNewest; r.order == orderAny {
		err = l.scanAll(ctx, f, func(rec driver.Record) error {
			rs = append(rs, rec)
			return nil
		})
	} else {
		bounded := ctx
		if r.limit > 0 && !r.asked {
			var cancel context.CancelFunc
			bounded, cancel = context.WithTimeout(ctx, listTime)
			defer cancel()
		}
		rs, err = l.insp.Records(bounded, f)
		if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
			err = output.Failed("the records were not read within %s", listTime).
				WithHint("--order any lists some of them, --order %s reads them all however long that takes", r.order)
		}
	}
	if more = r.limit > 0 && len(rs) > r.limit; more {
		rs = rs[:r.limit]
	}
	return rs, more, err
}

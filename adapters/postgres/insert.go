package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file writes rows that messages queued with driver.Statements.Insert together.

// insertSizes are the numbers of rows that one statement inserts: a few, so that each connection prepares few statements for
// a table.
var insertSizes = []int{64, 16, 4, 1}

const (
	maxParams      = 65535    // of a statement, in PostgreSQL's protocol
	maxInsertBytes = 16 << 20 // of the arguments of a statement; the protocol's bound is a gigabyte
)

// row is a queued row: statement nr of an item.
type row struct {
	item, nr int
	st       *driver.Statement
}

// inserts collects rows. Each element has those of one table and list of columns, in the order in which they are written.
type inserts struct {
	sets [][]row
	sql  string // of the last row: one that Insert wrote
}

// is reports a statement that inserts the row that its Table, Columns and Args describe.
func (s *inserts) is(st *driver.Statement) bool {
	if st.Columns == nil || st.Rows >= 0 || len(st.Args) != len(st.Columns) {
		return false
	}
	if st.SQL != s.sql {
		if st.SQL != st.InsertRows(1) {
			return false // changed after Insert
		}
		s.sql = st.SQL
	}
	return true
}

// all reports that a list has only rows.
func (s *inserts) all(list []driver.Statement) bool {
	for i := range list {
		if !s.is(&list[i]) {
			return false
		}
	}
	return len(list) > 0
}

// add adds statement nr of an item, and returns the set it is in. from is the set of the item's statement before: its rows
// must keep their order.
func (s *inserts) add(item, nr int, st *driver.Statement, from int) int {
	at := from
	for at < len(s.sets) && s.sets[at][0].st.SQL != st.SQL {
		at++
	}
	if at == len(s.sets) {
		s.sets = append(s.sets, nil)
	}
	s.sets[at] = append(s.sets[at], row{item, nr, st})
	return at
}

// write adds the rows to a pipeline.
func (s *inserts) write(p *pipeline) {
	for _, rows := range s.sets {
		for len(rows) > 0 {
			n := insertSize(rows)
			p.addRows(rows[:n])
			rows = rows[n:]
		}
	}
	s.sets = nil
}

// insertSize is how many of rows the next statement inserts.
func insertSize(rows []row) int {
	most, bytes := 0, 0
	for ; most < min(len(rows), insertSizes[0]); most++ {
		for _, v := range rows[most].st.Args {
			bytes += argSize(v)
		}
		if most > 0 && (bytes > maxInsertBytes || (most+1)*len(rows[0].st.Columns) > maxParams) {
			break
		}
	}
	return insertSizes[slices.IndexFunc(insertSizes, func(n int) bool { return n <= most })]
}

// argSize is roughly the size of an argument in bytes.
func argSize(v any) int {
	switch v := v.(type) {
	case nil, bool, int, int64, int32, float64, time.Time:
		return 8
	case string:
		return len(v)
	case []byte:
		return len(v)
	case json.Number:
		return len(v)
	}
	return maxInsertBytes / 16 // unknown
}

// addRows adds one statement for rows of one table and list of columns.
func (p *pipeline) addRows(rows []row) {
	first := rows[0]
	if len(rows) == 1 {
		p.add(step{what: effectName(first.nr, first.st.SQL), item: first.item}, markEffect+first.st.SQL, first.st.Args...)
		return
	}
	s := step{what: fmt.Sprintf("%d rows of table %s", len(rows), first.st.Table), item: first.item}
	args := make([]any, 0, len(rows)*len(first.st.Args))
	for _, r := range rows {
		args = append(args, r.st.Args...)
		if r.item != first.item {
			s.item, s.several = -1, true
		}
	}
	p.add(s, markEffect+first.st.InsertRows(len(rows)), args...)
}

// severalError reports a refused statement that wrote rows of several items: each must be written alone to find the culprit.
type severalError struct{ error }

func (e *severalError) Unwrap() error { return e.error }

func isSeveral(err error) bool {
	var e *severalError
	return errors.As(err, &e)
}

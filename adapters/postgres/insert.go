package postgres

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver/sqltext"
)

// insertSizes are the numbers of rows that one statement inserts, and maxInsertBytes bounds its arguments: the protocol's
// bound is a gigabyte.
var insertSizes = []int{64, 16, 4, 1}

const maxInsertBytes = 16 << 20

// write adds the rows to the pipeline.
func (p *pipeline) write(rows *sqltext.Inserts) {
	for _, part := range rows.Take() {
		p.addRows(rows.SQL(part), part)
	}
}

// addRows adds one statement for rows.
func (p *pipeline) addRows(sql string, rows []sqltext.Row) {
	first := rows[0]
	if len(rows) == 1 {
		p.add(step{what: effectName(first.Nr, sql), item: first.Item}, markEffect+sql, first.Args...)
		return
	}
	s := step{what: fmt.Sprintf("%d rows (%s)", len(rows), sqltext.Head(first.SQL)), item: first.Item}
	args := make([]any, 0, len(rows)*len(first.Args))
	for _, r := range rows {
		args = append(args, r.Args...)
		if r.Item != first.Item {
			s.item, s.several = -1, true
		}
	}
	p.add(s, markEffect+sql, args...)
}

// severalError reports a refused statement that wrote rows of several items: each must be written alone to find the culprit.
type severalError struct{ error }

func (e *severalError) Unwrap() error { return e.error }

func isSeveral(err error) bool {
	var e *severalError
	return errors.As(err, &e)
}

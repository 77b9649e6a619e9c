package sqltext

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Inserts collects rows that messages queued, so that one statement inserts several: those of [driver.Statements.Insert].
type Inserts struct {
	// Sizes are the numbers of rows that one statement inserts, the greatest first, the last is 1: a few, so that few
	// statements are prepared for a table. None: any number up to 500.
	Sizes []int
	// Bytes bounds the arguments of one statement, unless a single row has more.
	Bytes int
	// Texts: a statement that Exec queued is a row too if its text is INSERT INTO table (columns) VALUES ($1, $2, …).
	Texts bool

	sets  [][]Row // each has those of one statement, in the order in which they are written
	sql   string  // of the last row: one that Insert wrote
	texts map[string]rowText
}

// Row is a queued row: statement Nr of an item.
type Row struct {
	Item, Nr int
	*driver.Statement
}

const (
	maxRows   = 500
	maxParams = 65535 // of a statement, in PostgreSQL's protocol
)

// rowText is a statement that inserts one row of parameters.
type rowText struct {
	head   string // what stands before the row; "": it is another statement
	params int
}

const name = `(?:[\pL_][\pL\d_$]*|"(?:[^"]|"")+")`

// insertText matches what stands before the row, and the row.
var insertText = regexp.MustCompile(`(?i)^(\s*INSERT\s+INTO\s+` + name + `(?:\.` + name + `)?\s*(?:\(\s*` + name + `(?:\s*,\s*` + name +
	`)*\s*\)\s*)?VALUES\s*)(\(\s*\$\d+(?:\s*,\s*\$\d+)*\s*\))\s*$`)

func (s *Inserts) textOf(sql string) rowText {
	t, ok := s.texts[sql]
	if ok {
		return t
	}
	if m := insertText.FindStringSubmatch(sql); m != nil {
		n := strings.Count(m[2], "$")
		if strings.Join(strings.Fields(m[2]), "") == strings.ReplaceAll(params(1, n), " ", "") {
			t = rowText{head: m[1], params: n}
		}
	}
	if s.texts == nil {
		s.texts = map[string]rowText{}
	}
	s.texts[sql] = t
	return t
}

// params are the parameters of n rows: ($1, $2), ($3, $4).
func params(n, columns int) string {
	b := make([]byte, 0, n*(4+6*columns))
	for nr := range n * columns {
		switch {
		case nr%columns > 0:
			b = append(b, ", "...)
		case nr > 0:
			b = append(b, "), ("...)
		default:
			b = append(b, '(')
		}
		b = strconv.AppendInt(append(b, '$'), int64(nr+1), 10)
	}
	return string(append(b, ')'))
}

// Is reports a statement that inserts one row of its Args and does no more.
func (s *Inserts) Is(st *driver.Statement) bool {
	switch {
	case st.Rows >= 0:
		return false
	case s.Texts:
		t := s.textOf(st.SQL)
		return t.head != "" && len(st.Args) == t.params
	case st.Columns == nil || len(st.Args) != len(st.Columns):
		return false
	case st.SQL != s.sql:
		if st.SQL != st.InsertRow('"') {
			return false // changed after Insert
		}
		s.sql = st.SQL
	}
	return true
}

// SQL is the statement that inserts rows of one set, where Texts.
func (s *Inserts) SQL(rows []Row) string {
	if len(rows) == 1 {
		return rows[0].SQL
	}
	t := s.textOf(rows[0].SQL)
	return t.head + params(len(rows), t.params)
}

// All reports that the list of a message has only rows, which may be written among those of other messages. Rows of several
// tables that Exec queued may not: the default of a column may be what the row before left in the session, as currval returns.
func (s *Inserts) All(list []driver.Statement) bool {
	for i := range list {
		st, first := &list[i], &list[0]
		if !s.Is(st) || st.SQL != first.SQL && (st.Columns == nil || first.Columns == nil) {
			return false
		}
	}
	return len(list) > 0
}

// Add adds statement nr of an item, and returns its set. from is the set of the statement before it whose row must be written
// before, else 0.
func (s *Inserts) Add(item, nr int, st *driver.Statement, from int) int {
	at := from
	for at < len(s.sets) && s.sets[at][0].SQL != st.SQL {
		at++
	}
	if at == len(s.sets) {
		s.sets = append(s.sets, nil)
	}
	s.sets[at] = append(s.sets[at], Row{item, nr, st})
	return at
}

// Take removes the rows, and returns those of each statement in the order in which they are written.
func (s *Inserts) Take() (parts [][]Row) {
	for _, rows := range s.sets {
		for len(rows) > 0 {
			n := s.size(rows)
			parts = append(parts, rows[:n])
			rows = rows[n:]
		}
	}
	s.sets = nil
	return parts
}

// size is how many of rows the next statement inserts.
func (s *Inserts) size(rows []Row) int {
	limit := maxRows
	if len(s.Sizes) > 0 {
		limit = s.Sizes[0]
	}
	most, bytes := 0, 0
	for ; most < min(len(rows), limit); most++ {
		for _, v := range rows[most].Args {
			bytes += s.sizeOf(v)
		}
		if most > 0 && (bytes > s.Bytes || (most+1)*len(rows[0].Args) > maxParams) {
			break
		}
	}
	for _, n := range s.Sizes {
		if n <= most {
			return n
		}
	}
	return most
}

// sizeOf is roughly the size of an argument in bytes.
func (s *Inserts) sizeOf(v any) int {
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
	return s.Bytes / 16 // unknown
}

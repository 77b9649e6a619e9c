package driver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Statements are effects as data: SQL that commits with the record (mode A2). If a batch must be sent again, its handlers do
// not run again. Use the placeholders of the store's database.
type Statements struct{ List []Statement }

// Statement is one SQL statement of [Statements].
type Statement struct {
	SQL  string
	Args []any
	// Rows is the number of rows it must change. The transaction fails on the server if the count differs. -1 = any.
	Rows int
	// Table and Columns are those of a row that [Statements.Insert] queued, which SQL inserts. Columns is nil for all other
	// statements.
	Table   string
	Columns []string
}

// Exec queues a statement.
func (s *Statements) Exec(sql string, args ...any) {
	s.List = append(s.List, Statement{SQL: sql, Args: args, Rows: -1})
}

// ExecRows queues a statement that must change exactly n rows; otherwise nothing of this message is committed and the
// attempt counts as failed.
func (s *Statements) ExecRows(n int, sql string, args ...any) {
	s.List = append(s.List, Statement{SQL: sql, Args: args, Rows: n})
}

// Insert queues a row: values of columns of a table. It does what Exec does with INSERT INTO table (columns) VALUES ($1, …),
// and costs less: the rows of all messages of a commit go to the server together, a few statements for each table and list of
// columns. On PostgreSQL so do rows that Exec queued with a statement of exactly this form, unless the message queues anything
// else than rows of that table. If the database refuses rows, they are inserted one by one: only the message of the refused row
// has failed.
//
// The statements of one message keep their order, so insert parents before children. Messages that queue nothing but rows and
// follow each other in a commit can have their rows of different tables written in another order. The rows of each table stay
// in the order of the messages, unless tables depend on each other. Triggers FOR EACH STATEMENT run once for rows that are
// written together, and settings that triggers change stay changed from row to row. A default or trigger must not use the
// sequence of another table (currval, lastval): rows of other messages may come between the two.
//
// Names are quoted, so they are case-sensitive on PostgreSQL, and SQL in them has no effect. A dot separates a schema from
// its table. Values are those that Exec takes as arguments. A missing value or column is reported at the commit, as the
// failure of this message.
func (s *Statements) Insert(table string, columns []string, values ...any) {
	st := Statement{Args: values, Rows: -1, Table: table, Columns: append(make([]string, 0, len(columns)), columns...)}
	st.SQL = st.InsertRow('"')
	s.List = append(s.List, st)
}

// InsertRow returns the statement that inserts the row that [Statements.Insert] queued. quote is what stands around names: " in
// standard SQL.
func (s *Statement) InsertRow(quote byte) string {
	b := append(make([]byte, 0, 64+8*len(s.Columns)), "INSERT INTO "...)
	schema, table, qualified := strings.Cut(s.Table, ".")
	b = quoteName(b, schema, quote)
	if qualified {
		b = quoteName(append(b, '.'), table, quote)
	}
	b = append(b, " ("...)
	for i, c := range s.Columns {
		b = quoteName(comma(b, i), c, quote)
	}
	b = append(b, ") VALUES ("...)
	for i := range s.Columns {
		b = strconv.AppendInt(append(comma(b, i), '$'), int64(i+1), 10)
	}
	return string(append(b, ')'))
}

// Check returns an error for the first row without a table or a column, or with another number of values than columns. Stores
// call it before they write. A nil s has no rows.
func (s *Statements) Check() error {
	if s == nil {
		return nil
	}
	for i := range s.List {
		if err := s.List[i].check(); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *Statement) check() error {
	switch {
	case s.Columns == nil:
		return nil
	case s.Table == "" || slices.Contains(s.Columns, ""):
		return fmt.Errorf("insert into table %q, columns %q: a name is empty", s.Table, s.Columns)
	case strings.Contains(s.Table+strings.Join(s.Columns, ""), "\x00"):
		return fmt.Errorf("insert into table %q, columns %q: a name contains a zero byte", s.Table, s.Columns)
	case len(s.Columns) == 0:
		return fmt.Errorf("insert into table %q: the row has no column", s.Table)
	case len(s.Args) != len(s.Columns):
		return fmt.Errorf("insert into table %q: %d values for %d columns", s.Table, len(s.Args), len(s.Columns))
	}
	return nil
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	return b
}

// quoteName adds a name as SQL.
func quoteName(b []byte, name string, quote byte) []byte {
	b = append(b, quote)
	for i := range len(name) {
		if name[i] == quote {
			b = append(b, quote)
		}
		b = append(b, name[i])
	}
	return append(b, quote)
}

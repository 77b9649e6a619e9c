package driver

// Statements are effects as data: SQL that commits with the record (mode A2). If a batch must be sent again, its handlers do
// not run again. Use the placeholders of the store's database.
type Statements struct{ List []Statement }

// Statement is one SQL statement of [Statements].
type Statement struct {
	SQL  string
	Args []any
	// Rows is the number of rows it must change. The transaction fails on the server if the count differs. -1 = any.
	Rows int
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

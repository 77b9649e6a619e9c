package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
)

// rowsError reports that a statement changed another number of rows than it must.
type rowsError struct{ got, want int64 }

func (e *rowsError) Error() string {
	return fmt.Sprintf("changed %d rows, must change %d", e.got, e.want)
}

// addStatements adds the statements of item to a pipeline. An answer that is not as it must be stops the reading with an
// *rowsError: COMMIT must not be in the same pipeline then (see counts).
func (p *pipeline) addStatements(item int, list []driver.Statement) {
	for i := range list {
		st := &list[i]
		s := step{what: effectName(i, st.SQL), item: item}
		if st.Rows >= 0 {
			s.tag = func(tag pgconn.CommandTag) error { return expect(st, tag) }
		}
		p.add(s, markEffect+st.SQL, st.Args...)
	}
}

func expect(st *driver.Statement, tag pgconn.CommandTag) error {
	if st.Rows >= 0 && tag.RowsAffected() != int64(st.Rows) {
		return &rowsError{got: tag.RowsAffected(), want: int64(st.Rows)}
	}
	return nil
}

func effectName(i int, sql string) string { return fmt.Sprintf("statement %d (%s)", i+1, head(sql)) }

// head is the beginning of a statement, for errors.
func head(sql string) string {
	const most = 60
	sql = strings.Join(strings.Fields(sql), " ")
	if len(sql) > most {
		return sql[:most] + "…"
	}
	return sql
}

// statements answers the statements of a work.
func statements(w *driver.Work) []driver.Statement {
	if e, _ := w.Effects.(*driver.Statements); e != nil {
		return e.List
	}
	return nil
}

// sets reports that a work has statements that may change settings of the transaction.
func sets(w *driver.Work) bool { return setting(statements(w)) }

func setting(list []driver.Statement) bool {
	for _, st := range list {
		if word, rest := keyword(st.SQL); word == "SET" || word == "SELECT" && strings.Contains(strings.ToLower(rest), "set_config") {
			return true
		}
	}
	return false
}

// counts reports that one of some works has statements whose number of rows is checked.
func counts(w []driver.Work, which []int) bool {
	for _, i := range which {
		for _, st := range statements(&w[i]) {
			if st.Rows >= 0 {
				return true
			}
		}
	}
	return false
}

// refused are the first words of statements that an effect must not be: they end or part the transaction, or change the
// connection, which others use after it.
var refused = map[string]string{
	"BEGIN": "transaction", "START": "transaction", "COMMIT": "transaction", "END": "transaction", "ROLLBACK": "transaction",
	"ABORT": "transaction", "SAVEPOINT": "transaction", "RELEASE": "transaction", "PREPARE": "transaction",
	"DEALLOCATE": "connection", "DISCARD": "connection", "RESET": "connection", "LISTEN": "connection",
	"UNLISTEN": "connection", "LOAD": "connection", "COPY": "protocol",
}

// checkStatement refuses SQL that would take the transaction out of semel's hands.
func checkStatement(sql string) error {
	word, rest := keyword(sql)
	if word == "" {
		return fmt.Errorf("statement %q is empty", head(sql))
	}
	what, bad := refused[word]
	if word == "SET" {
		// SET LOCAL and SET CONSTRAINTS end with the transaction.
		next, _ := keyword(rest)
		what, bad = "connection", next != "LOCAL" && next != "CONSTRAINTS"
	}
	if !bad {
		return nil
	}
	switch what {
	case "transaction":
		return fmt.Errorf("statement %q: the transaction is semel's, which commits it with the record", head(sql))
	case "protocol":
		return fmt.Errorf("statement %q: COPY cannot be queued", head(sql))
	}
	return fmt.Errorf("statement %q would change the connection for whoever uses it next; Try: SET LOCAL", head(sql))
}

// keyword answers the first word of a statement in upper case, behind white space, comments and stray semicolons, and
// what follows it.
func keyword(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n\f\v;(")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			sql = afterComment(sql)
		default:
			n := 0
			for n < len(sql) && (sql[n]|0x20 >= 'a' && sql[n]|0x20 <= 'z' || sql[n] == '_') {
				n++
			}
			return strings.ToUpper(sql[:n]), sql[n:]
		}
	}
}

// afterComment skips a comment; PostgreSQL's nest.
func afterComment(sql string) string {
	depth := 0
	for i := 0; i+1 < len(sql); i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return sql[i+1:]
			}
		}
	}
	return ""
}

package sqlite

import (
	sqldriver "database/sql/driver"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/driver/sqltext"
)

// parsed is a statement of a handler made ready for SQLite.
type parsed struct {
	*sqltext.Parsed
	// counts: SQLite's changes() counts this statement. SELECT, WITH … SELECT and DDL leave the number of an earlier one.
	counts bool
}

// refused are statements that would end the transaction, leave it or change the connection.
var refused = map[string]string{
	"BEGIN": "transaction control", "COMMIT": "transaction control", "END": "transaction control",
	"ROLLBACK": "transaction control", "SAVEPOINT": "transaction control", "RELEASE": "transaction control",
	"ATTACH": "a change of the connection", "DETACH": "a change of the connection", "PRAGMA": "a change of the connection",
	"VACUUM": "a change of the connection", "REINDEX": "a change of the connection",
}

// parse reads one statement.
func parse(sql string) (*parsed, error) {
	p, err := sqltext.Parse(sqltext.Lexer{In: sql}, nil)
	if p.Verb == "CREATE" && p.Second == "TRIGGER" { // the statements in it would need a parser of their own
		return nil, fmt.Errorf("CREATE TRIGGER cannot be an effect: make it when the application starts")
	}
	if err != nil {
		return nil, err
	}
	if what, ok := refused[p.Verb]; ok {
		return nil, fmt.Errorf("%s is %s: the effects run inside semel's own transaction", p.Verb, what)
	}
	return &parsed{p, p.Verb == "INSERT" || p.Verb == "UPDATE" || p.Verb == "DELETE" || p.Verb == "REPLACE"}, nil
}

// timeFormat is how a time.Time argument is stored: SQLite's date functions read it, it sorts, and a column declared
// DATETIME or TIMESTAMP reads it back as a time.Time.
const timeFormat = "2006-01-02 15:04:05.999999999-07:00"

// bindValue turns an argument of a handler's statement into what SQLite stores: nil, int64, float64, []byte or string.
func bindValue(v any) (sqldriver.Value, error) {
	plain, err := sqltext.Value(v)
	switch x := plain.(type) {
	case bool:
		return rowstore.Flag(x), nil
	case time.Time:
		return x.UTC().Format(timeFormat), nil
	}
	return plain, err
}

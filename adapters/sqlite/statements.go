package sqlite

import (
	sqldriver "database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver/sqltext"
)

// parsed is a statement of a handler made ready for SQLite: one statement, every placeholder an anonymous "?", so that the
// same handler runs on PostgreSQL ($1) too.
type parsed struct {
	sql string
	// order has the index of the argument of each "?", and args how many arguments the statement needs.
	order []int
	args  int
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

// parse reads one statement. Placeholders are found outside of literals, quoted names and comments only.
func parse(sql string) (*parsed, error) {
	l := sqltext.Lexer{In: sql}
	var out strings.Builder
	p := &parsed{}
	verb, second, ended := "", "", false
	for l.Next() {
		if l.Kind == sqltext.SpaceToken {
			out.WriteString(l.Text)
			continue
		}
		if ended && l.Text != ";" {
			return nil, fmt.Errorf("more than one statement: queue each with its own Exec")
		}
		switch l.Kind {
		case sqltext.WordToken:
			word := strings.ToUpper(l.Text)
			switch {
			case verb == "":
				verb = word
			case second == "" || second == "TEMP" || second == "TEMPORARY":
				second = word
			}
			if verb == "CREATE" && second == "TRIGGER" { // the statements in it would need a parser of their own
				return nil, fmt.Errorf("CREATE TRIGGER cannot be an effect: make it when the application starts")
			}
			out.WriteString(l.Text)
		case sqltext.ParamToken:
			index, err := p.param(l.Text)
			if err != nil {
				return nil, err
			}
			p.order = append(p.order, index)
			out.WriteByte('?')
		case sqltext.EndToken:
			ended = verb != ""
		default:
			out.WriteString(l.Text)
		}
	}
	if l.Err != nil {
		return nil, l.Err
	}
	if verb == "" {
		return nil, fmt.Errorf("statement is empty")
	}
	if what, ok := refused[verb]; ok {
		return nil, fmt.Errorf("%s is %s: the effects run inside semel's own transaction", verb, what)
	}
	p.counts = verb == "INSERT" || verb == "UPDATE" || verb == "DELETE" || verb == "REPLACE"
	p.sql = out.String()
	return p, nil
}

// param returns the index of the argument of a placeholder. As in SQLite, "?" takes the one after the largest so far.
func (p *parsed) param(text string) (int, error) {
	n := p.args + 1
	if text != "?" {
		var err error
		if n, err = strconv.Atoi(text[1:]); err != nil || n < 1 || n > 32766 {
			return 0, fmt.Errorf("placeholder %s: want ?, ?1 or $1", text)
		}
	}
	p.args = max(p.args, n)
	return n - 1, nil
}

// timeFormat is how a time.Time argument is stored: SQLite's date functions read it, it sorts, and a column declared
// DATETIME or TIMESTAMP reads it back as a time.Time.
const timeFormat = "2006-01-02 15:04:05.999999999-07:00"

// bindValue turns an argument of a handler's statement into what SQLite stores: nil, int64, float64, []byte or string.
// Numbers of JSON keep their kind (1 is an integer, 1.0 is not). Objects and arrays become JSON text.
func bindValue(v any) (sqldriver.Value, error) {
	switch x := v.(type) {
	case json.Number:
		return jsonNumber(x)
	case json.RawMessage:
		return string(x), nil
	case bool:
		return flag(x), nil
	case time.Time:
		return x.UTC().Format(timeFormat), nil
	case sqldriver.Valuer:
		inner, err := sqldriver.DefaultParameterConverter.ConvertValue(x)
		if err != nil {
			return nil, err
		}
		return bindValue(inner)
	}
	rv := reflect.ValueOf(v)
	if (rv.Kind() == reflect.Pointer || rv.Kind() == reflect.Interface) && !rv.IsNil() {
		return bindValue(rv.Elem().Interface())
	}
	if rv.CanUint() && rv.Uint() > math.MaxInt64 {
		return nil, fmt.Errorf("number %d is too large for an SQLite integer; pass it as text", rv.Uint())
	}
	if plain, err := sqldriver.DefaultParameterConverter.ConvertValue(v); err == nil {
		if b, ok := plain.(bool); ok {
			return flag(b), nil
		}
		return plain, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("type %T has no SQLite value: %w", v, err)
	}
	return string(b), nil
}

func jsonNumber(n json.Number) (sqldriver.Value, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		return nil, fmt.Errorf("number %s is too large for an SQLite integer; pass it as text", n)
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s: %w", n, err)
	}
	return f, nil
}

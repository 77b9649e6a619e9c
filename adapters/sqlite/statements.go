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
)

// parsed is a statement of a handler made ready for SQLite: one statement, every placeholder an anonymous "?", so that
// the same handler runs on PostgreSQL ($1) and here.
type parsed struct {
	sql string
	// order has, for each "?" of sql, the index of its argument; args is how many arguments the statement needs.
	order []int
	args  int
	// counts: SQLite's changes() speaks of this statement. It does not of SELECT, WITH … SELECT or DDL, which leave the
	// number of an earlier statement.
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
	l := lexer{in: sql}
	var out strings.Builder
	p := &parsed{}
	verb, second, ended := "", "", false
	for l.next() {
		if l.kind == tokenSpace {
			out.WriteString(l.text)
			continue
		}
		if ended && l.text != ";" {
			return nil, fmt.Errorf("more than one statement: queue each with its own Exec")
		}
		switch l.kind {
		case tokenWord:
			word := strings.ToUpper(l.text)
			switch {
			case verb == "":
				verb = word
			case second == "" || second == "TEMP" || second == "TEMPORARY":
				second = word
			}
			if verb == "CREATE" && second == "TRIGGER" { // the statements in it would need a parser of their own
				return nil, fmt.Errorf("CREATE TRIGGER cannot be an effect: make it when the application starts")
			}
			out.WriteString(l.text)
		case tokenParam:
			index, err := p.param(l.text)
			if err != nil {
				return nil, err
			}
			p.order = append(p.order, index)
			out.WriteByte('?')
		case tokenEnd:
			ended = verb != ""
		default:
			out.WriteString(l.text)
		}
	}
	if l.err != nil {
		return nil, l.err
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

// param answers the index of the argument of a placeholder: "?" takes the one after the largest so far, as in SQLite.
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

type tokenKind uint8

const (
	tokenOther tokenKind = iota // literals, quoted names, operators, numbers
	tokenSpace                  // white space and comments
	tokenWord
	tokenParam
	tokenEnd // ;
)

// lexer splits SQL as far as is needed to tell placeholders and semicolons from those in literals and comments.
type lexer struct {
	in   string
	kind tokenKind
	text string
	err  error
}

func (l *lexer) next() bool {
	if l.in == "" || l.err != nil {
		return false
	}
	n := 1
	c := l.in[0]
	l.kind = tokenOther
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
		l.kind = tokenSpace
	case strings.HasPrefix(l.in, "--"):
		l.kind = tokenSpace
		n = len(l.in)
		if i := strings.IndexByte(l.in, '\n'); i >= 0 {
			n = i + 1
		}
	case strings.HasPrefix(l.in, "/*"):
		l.kind = tokenSpace
		n = len(l.in) // SQLite lets a comment run to the end of the input
		if i := strings.Index(l.in[2:], "*/"); i >= 0 {
			n = i + 4
		}
	case c == '\'' || c == '"' || c == '`':
		n = l.quoted(c)
	case c == '[':
		n = 1 + strings.IndexByte(l.in, ']')
		if n == 0 {
			l.err = fmt.Errorf("quoted name is not closed: %s", head(l.in))
			return false
		}
	case c == ';':
		l.kind = tokenEnd
	case c == '?' || c == '$' || c == ':' || c == '@':
		l.kind = tokenParam
		n += wordLen(l.in[1:])
		if c == ':' && n == 1 {
			l.kind = tokenOther
		}
	case wordLen(l.in) > 0:
		n = wordLen(l.in)
		if c < '0' || c > '9' {
			l.kind = tokenWord
		}
	}
	if l.err != nil {
		return false
	}
	l.text, l.in = l.in[:n], l.in[n:]
	return true
}

// quoted answers the length of a literal or name in quotes, in which a doubled quote stands for itself.
func (l *lexer) quoted(q byte) int {
	for i := 1; i < len(l.in); i++ {
		if l.in[i] != q {
			continue
		}
		if i+1 < len(l.in) && l.in[i+1] == q {
			i++
			continue
		}
		return i + 1
	}
	l.err = fmt.Errorf("quote is not closed: %s", head(l.in))
	return len(l.in)
}

func wordLen(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && c < 0x80 && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return i
		}
	}
	return len(s)
}

// timeFormat is how a time.Time argument is stored: SQLite's date functions read it, it sorts, and a column declared
// DATETIME or TIMESTAMP reads it back as a time.Time.
const timeFormat = "2006-01-02 15:04:05.999999999-07:00"

// bindValue turns an argument of a handler's statement into what SQLite stores: nil, int64, float64, []byte or string.
// Numbers of JSON keep their kind (1 is an integer, 1.0 is not), objects and arrays become JSON text.
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

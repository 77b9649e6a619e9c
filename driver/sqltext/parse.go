package sqltext

import (
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Parsed is one statement of a handler with anonymous placeholders ("?"), so that the same handler runs on every database.
type Parsed struct {
	SQL string
	// Order has the index of the argument of each "?", and Args how many arguments the statement needs.
	Order []int
	Args  int
	// Verb is its first word, and Second the next one that is not TEMP or TEMPORARY, in upper case.
	Verb, Second string
}

// Parse reads one statement. Placeholders are ?, ?1 or $1, outside of literals, quoted names and comments. check may be nil;
// it refuses tokens. After an error, Verb and Second are those that were read.
func Parse(l Lexer, check func(*Lexer) error) (*Parsed, error) {
	var out strings.Builder
	p := &Parsed{}
	ended := false
	for l.Next() {
		if ended && l.Kind != SpaceToken && l.Text != ";" {
			return p, errors.New("more than one statement: queue each with its own Exec")
		}
		if check != nil {
			if err := check(&l); err != nil {
				return p, err
			}
		}
		switch l.Kind {
		case ParamToken:
			index, err := p.param(l.Text)
			if err != nil {
				return p, err
			}
			p.Order = append(p.Order, index)
			out.WriteByte('?')
			continue
		case EndToken:
			ended = p.Verb != ""
			continue
		case WordToken:
			p.word(strings.ToUpper(l.Text))
		}
		out.WriteString(l.Text)
	}
	if l.Err != nil {
		return p, l.Err
	}
	if p.Verb == "" {
		return p, errors.New("statement is empty")
	}
	p.SQL = out.String()
	return p, nil
}

func (p *Parsed) word(word string) {
	switch {
	case p.Verb == "":
		p.Verb = word
	case p.Second == "" || p.Second == "TEMP" || p.Second == "TEMPORARY":
		p.Second = word
	}
}

// param returns the index of the argument of a placeholder. As in SQLite, "?" takes the one after the largest so far.
func (p *Parsed) param(text string) (int, error) {
	n := p.Args + 1
	if text != "?" {
		var err error
		if n, err = strconv.Atoi(text[1:]); err != nil || n < 1 || n > 32766 {
			return 0, fmt.Errorf("placeholder %s: want ?, ?1 or $1", text)
		}
	}
	p.Args = max(p.Args, n)
	return n - 1, nil
}

// Values appends to v the values of the arguments of a statement, in the order of its placeholders, as [Value] makes them. A
// panic of a method of an argument (Value, MarshalJSON) is an error: it happens long after the handler returned.
func (p *Parsed) Values(v, args []any, value func(any) (sqldriver.Value, error)) (out []any, err error) {
	if len(args) != p.Args {
		return nil, fmt.Errorf("%d arguments for %d placeholders", len(args), p.Args)
	}
	at := 0
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("argument %d: type %T panicked: %v", at+1, args[at], r)
		}
	}()
	for _, at = range p.Order {
		x, err := value(args[at])
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", at+1, err)
		}
		v = append(v, x)
	}
	return v, nil
}

// Value turns an argument of a handler's statement into a value that database/sql drivers take. Numbers of JSON keep their
// kind (1 is an integer, 1.0 is not). Objects and arrays become JSON text.
func Value(v any) (sqldriver.Value, error) {
	switch x := v.(type) {
	case json.Number:
		return jsonNumber(x)
	case json.RawMessage:
		return string(x), nil
	case sqldriver.Valuer:
		inner, err := sqldriver.DefaultParameterConverter.ConvertValue(x)
		if err != nil {
			return nil, err
		}
		return Value(inner)
	}
	rv := reflect.ValueOf(v)
	if (rv.Kind() == reflect.Pointer || rv.Kind() == reflect.Interface) && !rv.IsNil() {
		return Value(rv.Elem().Interface())
	}
	if rv.CanUint() && rv.Uint() > math.MaxInt64 {
		return nil, fmt.Errorf("number %d is too large for a 64-bit integer; pass it as text", rv.Uint())
	}
	if plain, err := sqldriver.DefaultParameterConverter.ConvertValue(v); err == nil {
		return plain, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("type %T has no SQL value: %w", v, err)
	}
	return string(b), nil
}

func jsonNumber(n json.Number) (sqldriver.Value, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		return nil, fmt.Errorf("number %s is too large for a 64-bit integer; pass it as text", n)
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s: %w", n, err)
	}
	return f, nil
}

package sqlite

import (
	sqldriver "database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// timeFormat is how a time.Time argument is stored: SQLite's date functions read it, it sorts, and a column declared
// DATETIME or TIMESTAMP reads it back as a time.Time.
const timeFormat = "2006-01-02 15:04:05.999999999-07:00"

// bindValue turns an argument of a handler's statement into what SQLite stores: nil, int64, float64, []byte or string.
// Numbers of JSON keep their kind (1 is an integer, 1.0 is not), objects and arrays become JSON text.
func bindValue(v any) (sqldriver.Value, error) {
	switch x := v.(type) {
	case nil, int64, float64, string, []byte:
		return x, nil
	case bool:
		return flag(x), nil
	case int:
		return int64(x), nil
	case json.Number:
		return jsonNumber(x)
	case json.RawMessage:
		return string(x), nil
	case time.Time:
		return x.UTC().Format(timeFormat), nil
	case time.Duration:
		return int64(x), nil
	case sqldriver.Valuer:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return nil, nil
		}
		inner, err := x.Value()
		if err != nil {
			return nil, err
		}
		if _, again := inner.(sqldriver.Valuer); again {
			return nil, fmt.Errorf("type %T: its Value is a Valuer again", v)
		}
		return bindValue(inner)
	}
	return bindKind(reflect.ValueOf(v))
}

func bindKind(v reflect.Value) (sqldriver.Value, error) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil, nil
		}
		return bindValue(v.Elem().Interface())
	case reflect.Bool:
		return flag(v.Bool()), nil
	case reflect.String:
		return v.String(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if v.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("number %d is too large for an SQLite integer; pass it as text", v.Uint())
		}
		return int64(v.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return v.Float(), nil
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Bytes(), nil
		}
	default:
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, fmt.Errorf("type %s has no SQLite value: %w", v.Type(), err)
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

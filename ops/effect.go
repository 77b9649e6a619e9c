package ops

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/internal/words"
)

// Effect is one effect that happened: a line of a journal that somebody else keeps, such as a payment provider's export, a table of
// charges, the handler's own log.
type Effect struct {
	// Key is semel's key, EffectKey what the handler was given as SEMEL_EFFECT_KEY; one of them, or both.
	Key       string
	EffectKey *[32]byte
	// Consumer and Tenant scope the key; "" = those of the audit.
	Consumer, Tenant string
	// Step names the handler's step whose effect it is; "" = the only one.
	Step string
	// At is when it happened; zero = not known.
	At time.Time
}

// effectFields are the members of a line, or the columns of a query.
var effectFields = []string{"key", "effect_key", "consumer", "tenant", "step", "at"}

// set gives the field of that name a value, as JSON or a database has it; other names are passed over.
func (e *Effect) set(name string, v any) (err error) {
	if v == nil {
		return nil
	}
	switch strings.ToLower(name) {
	case "key":
		e.Key, err = nameOf(v)
	case "consumer":
		e.Consumer, err = nameOf(v)
	case "tenant":
		e.Tenant, err = nameOf(v)
	case "step":
		e.Step, err = nameOf(v)
	case "at":
		e.At, err = timeAt(v)
	case "effect_key":
		var s string
		if s, err = nameOf(v); err == nil && s != "" {
			e.EffectKey, err = effectKey(s)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (e *Effect) check() error {
	if e.Key == "" && e.EffectKey == nil {
		return errors.New("it has neither key nor effect_key")
	}
	return nil
}

func effectKey(s string) (*[32]byte, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 32 {
		return nil, fmt.Errorf("%q is no effect key (64 hex digits)", words.Printable(s, 80))
	}
	return (*[32]byte)(b), nil
}

// nameOf is a value that names something: numbers as they are written.
func nameOf(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case []byte:
		return string(x), nil
	case json.Number:
		return x.String(), nil
	case int64, int32, int16, int, uint32, bool:
		return fmt.Sprint(x), nil
	case [16]byte: // a uuid, as pgx has it
		return fmt.Sprintf("%x-%x-%x-%x-%x", x[:4], x[4:6], x[6:8], x[8:10], x[10:]), nil
	case fmt.Stringer:
		return x.String(), nil
	}
	return "", fmt.Errorf("a %T is no text", v)
}

// timeAt reads a time: RFC 3339, a date with a time in UTC as databases write it, or a number since 1970, whose size tells
// whether it counts seconds, milliseconds, microseconds or nanoseconds.
func timeAt(v any) (time.Time, error) {
	if t, ok := v.(time.Time); ok {
		return t, nil
	}
	if f, ok := v.(float64); ok {
		return since1970(f)
	}
	s, err := nameOf(v)
	if err != nil {
		return time.Time{}, err
	}
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z07", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return since1970(f)
	}
	return time.Time{}, fmt.Errorf("%q is no time (use RFC 3339, as 2026-01-31T12:00:00Z)", words.Printable(s, 80))
}

func since1970(f float64) (time.Time, error) {
	if math.IsNaN(f) || f < 0 || f > 1e19 {
		return time.Time{}, fmt.Errorf("%g is no time since 1970", f)
	}
	for f >= 1e11 { // seconds until the year 5138
		f /= 1000
	}
	whole, rest := math.Modf(f)
	return time.Unix(int64(whole), int64(rest*1e9)).UTC(), nil
}

// ReadEffects calls each with the effects of a journal of JSON lines: objects with the members key, effect_key, consumer,
// tenant, step and at; others are passed over. A last line that was cut off by a crash is passed over, any other line
// that cannot be read is an error that names it.
func ReadEffects(name string, in io.Reader, each func(Effect) error) error {
	return readLines(name, in, func(b []byte) error {
		e, err := readEffect(b)
		if err != nil {
			return err
		}
		return each(e)
	})
}

func readEffect(b []byte) (e Effect, err error) {
	var members map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil || members == nil {
		return e, fmt.Errorf("%w: %w", errNotJSON, errors.Join(err, errOneObject))
	}
	if dec.More() {
		return e, errOneObject
	}
	for _, name := range effectFields {
		if err := e.set(name, members[name]); err != nil {
			return e, err
		}
	}
	return e, e.check()
}

var errOneObject = errors.New("a journal has one object a line")

// EffectRows makes effects of the rows of a query with these columns. A query without key and effect_key is an error.
func EffectRows(columns []string) (row func(values []any) (Effect, error), err error) {
	if !slices.ContainsFunc(columns, func(name string) bool { n := strings.ToLower(name); return n == "key" || n == "effect_key" }) {
		return nil, fmt.Errorf("the query has no column key or effect_key (it has %s): SELECT order_id AS key, created_at AS at …",
			strings.Join(columns, ", "))
	}
	return func(values []any) (e Effect, err error) {
		for i, name := range columns {
			if err := e.set(name, values[i]); err != nil {
				return e, err
			}
		}
		return e, e.check()
	}, nil
}

package worker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/semel-dev/semel"
)

// EffectsKeep is how many bytes of statements one run may print.
const EffectsKeep = 16 << 20

// Statements makes a handler whose output is SQL as JSON lines, which commits together with the record (mode A2). A
// line that cannot be read is the handler's mistake: the message becomes a dead letter, and nothing is committed.
func Statements(r Runner) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
		out, cut, err := r.Run(ctx, a)
		if err != nil {
			return err
		}
		if cut {
			return semel.Permanent(fmt.Errorf("the handler printed more than %d bytes of statements", EffectsKeep))
		}
		result, err := readEffects(out, tx)
		if err != nil {
			return semel.Permanent(err)
		}
		a.SetResult(result)
		return nil
	})
}

// effect is one line of a handler's output: a statement, a row, or, at the end, the result.
type effect struct {
	SQL    *string         `json:"sql"`
	Args   []any           `json:"args"`
	Rows   *int            `json:"rows"`
	Insert *string         `json:"insert"`
	Row    map[string]any  `json:"row"`
	Result json.RawMessage `json:"result"`
}

// queue queues what a line says.
func (e *effect) queue(tx *semel.Statements) {
	switch {
	case e.Insert != nil:
		columns := slices.Sorted(maps.Keys(e.Row)) // the same for all rows of these columns: they are written together
		values := make([]any, len(columns))
		for i, c := range columns {
			values[i] = e.Row[c]
		}
		tx.Insert(*e.Insert, columns, values...)
	case e.Rows != nil:
		tx.ExecRows(*e.Rows, *e.SQL, e.Args...)
	default:
		tx.Exec(*e.SQL, e.Args...)
	}
}

// readEffects queues the statements of a handler's output and returns its result. The error names the line.
func readEffects(out []byte, tx *semel.Statements) (result []byte, err error) {
	ended := false
	for n := 1; len(out) > 0; n++ {
		line, rest, _ := bytes.Cut(out, []byte{'\n'})
		out = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		e, err := readEffect(line)
		if err == nil && ended {
			err = errors.New("there is a line after the result, which must be the last")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the handler's output: %w: %s", n, err, shorten(string(line), 120))
		}
		if e.Result != nil {
			result, ended = e.Result, true
			continue
		}
		e.queue(tx)
	}
	return result, nil
}

func readEffect(line []byte) (effect, error) {
	var e effect
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, fmt.Errorf(`want {"sql":"…","args":[…],"rows":1}, {"insert":"table","row":{"column":…}} or {"result":…}: %w`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("want one JSON object a line")
	}
	return e, e.complete()
}

// complete checks an effect and decodes its bytes.
func (e *effect) complete() error {
	if err := e.check(); err != nil {
		return err
	}
	for i, v := range e.Args {
		b, is, err := blob(v)
		if err != nil {
			return fmt.Errorf("argument %d: %w", i+1, err)
		}
		if is {
			e.Args[i] = b
		}
	}
	for c, v := range e.Row {
		b, is, err := blob(v)
		if err != nil {
			return fmt.Errorf(`"row": column %q: %w`, c, err)
		}
		if is {
			e.Row[c] = b
		}
	}
	return nil
}

// check returns an error for members that are missing, or do not belong together.
func (e *effect) check() error {
	statement, row := e.SQL != nil || e.Args != nil || e.Rows != nil, e.Insert != nil || e.Row != nil
	_, noName := e.Row[""]
	switch {
	case !statement && !row && e.Result == nil:
		return errors.New(`want "sql", "insert" or "result"`)
	case e.Result != nil && (statement || row):
		return errors.New(`"result" stands alone`)
	case statement && row:
		return errors.New(`"insert" and "row" stand without "sql", "args" and "rows"; write a line for each`)
	case statement && e.SQL == nil:
		return errors.New(`"args" and "rows" need "sql"`)
	case statement && *e.SQL == "":
		return errors.New(`"sql" is empty`)
	case e.Rows != nil && *e.Rows < 0:
		return errors.New(`"rows" is negative: leave it away for any number`)
	case row && (e.Insert == nil || *e.Insert == ""):
		return errors.New(`"row" needs "insert", the name of its table`)
	case row && len(e.Row) == 0:
		return errors.New(`"insert" needs "row", an object with a value for each column`)
	case noName:
		return errors.New(`"row" has a column without a name`)
	}
	return nil
}

// blob reads {"base64":"…"}; every other object or array goes to the database as JSON text.
func blob(v any) (b []byte, is bool, err error) {
	m, ok := v.(map[string]any)
	if !ok || len(m) != 1 {
		return nil, false, nil
	}
	s, ok := m["base64"].(string)
	if !ok {
		return nil, false, nil
	}
	b, err = base64.StdEncoding.DecodeString(s)
	return b, true, err
}

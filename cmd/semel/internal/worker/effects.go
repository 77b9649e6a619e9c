package worker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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

// effect is one line of a handler's output: a statement, or, at the end, the result.
type effect struct {
	SQL    *string         `json:"sql"`
	Args   []any           `json:"args"`
	Rows   *int            `json:"rows"`
	Result json.RawMessage `json:"result"`
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
		if e.SQL == nil {
			result, ended = e.Result, true
			continue
		}
		if e.Rows == nil {
			tx.Exec(*e.SQL, e.Args...)
		} else {
			tx.ExecRows(*e.Rows, *e.SQL, e.Args...)
		}
	}
	return result, nil
}

func readEffect(line []byte) (effect, error) {
	var e effect
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, fmt.Errorf(`want {"sql":"…","args":[…],"rows":1} or {"result":…}: %w`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("want one JSON object a line")
	}
	switch {
	case e.SQL == nil && e.Result == nil:
		return e, errors.New(`want "sql" or "result"`)
	case e.SQL == nil && (e.Args != nil || e.Rows != nil), e.SQL != nil && e.Result != nil:
		return e, errors.New(`"result" stands alone`)
	case e.SQL != nil && *e.SQL == "":
		return e, errors.New(`"sql" is empty`)
	case e.Rows != nil && *e.Rows < 0:
		return e, errors.New(`"rows" is negative: leave it away for any number`)
	}
	for i, v := range e.Args {
		b, is, err := blob(v)
		if err != nil {
			return e, fmt.Errorf("argument %d: %w", i+1, err)
		}
		if is {
			e.Args[i] = b
		}
	}
	return e, nil
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

package sqlite

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

const stepColumns = "name, state, undo, seq, token, nonce, result, failures, reason, updated_at"

const (
	// 1 hash 2 epoch 3 version
	sqlSteps = "SELECT " + stepColumns + ` FROM semel_step WHERE hash = ? AND epoch = ? AND version = ? ORDER BY seq`
	// 1 hash 2 epoch 3 version 4 name
	sqlStep = "SELECT " + stepColumns + " FROM semel_step WHERE hash = ? AND epoch = ? AND version = ? AND name = ?"
	// sqlStepLast reads the row with the greatest seq: who writes a new one needs it, and not the whole journal. 1 hash
	// 2 epoch 3 version
	sqlStepLast = "SELECT " + stepColumns + ` FROM semel_step WHERE hash = ? AND epoch = ? AND version = ?
  ORDER BY seq DESC LIMIT 1`
	// 1 hash 2 epoch 3 version, then stepColumns
	sqlStepPut = `INSERT INTO semel_step (hash, epoch, version, name, state, undo, seq, token, nonce, result, failures,
  reason, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (hash, epoch, version, name) DO UPDATE SET state = excluded.state, undo = excluded.undo,
  token = excluded.token, nonce = excluded.nonce, result = excluded.result, failures = excluded.failures,
  reason = excluded.reason, updated_at = excluded.updated_at`
	// sqlStepsOvertaken removes the journals of older versions. 1 hash 2 version
	sqlStepsOvertaken = "DELETE FROM semel_step WHERE hash = ? AND version < ?"
)

// Steps reads the journal of a run. See [driver.StepStore].
func (s *Store) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	var out []driver.Step
	err := s.db.read(ctx, "read steps", func(v []any) error {
		st, err := scanStep(v)
		out = append(out, st)
		return err
	}, sqlSteps, hash16(&h.Key), int64(h.Epoch), []byte(h.Version))
	return out, err
}

// WriteSteps writes rows of a journal with the effects that belong to them, in one transaction. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (o driver.Outcome, err error) {
	for i := range w {
		if _, ok := w[i].Effects.(*driver.Statements); !ok && w[i].Effects != nil {
			err := fmt.Errorf("effects of type %T: %w", w[i].Effects, driver.ErrUnsupported)
			return driver.Unknown, fmt.Errorf("write steps: %w", &driver.ItemError{Index: i, Err: err})
		}
	}
	hash := hash16(&h.Key)
	err = s.db.write(ctx, len(w), func(t *txn) (err error) {
		o, err = t.steps(h, hash, w)
		return err
	})
	if err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
	}
	return o, nil
}

func (t *txn) steps(h driver.Hold, hash []byte, w []driver.StepWrite) (driver.Outcome, error) {
	if !checkToken(h.Token) {
		return driver.Lost, nil
	}
	r, err := t.find(h.Key, hash)
	if err != nil {
		return driver.Unknown, err
	}
	rows, err := t.journal(h, hash, w)
	if err != nil {
		return driver.Unknown, err
	}
	put, effects, o := driver.DecideSteps(r, rows, h, w, t.now)
	if len(put) > 0 && h.Version != "" {
		if _, err := t.s.exec(sqlStepsOvertaken, hash, []byte(h.Version)); err != nil {
			return driver.Unknown, err
		}
	}
	for i := range put {
		if err := t.putStep(&h, hash, &put[i]); err != nil {
			return driver.Unknown, fmt.Errorf("step %q: %w", put[i].Name, err)
		}
	}
	spent := &allowance{left: t.db.o.MaxTx}
	for _, i := range effects {
		e := w[i].Effects.(*driver.Statements)
		if e == nil {
			continue
		}
		if err := t.effects(e.List, spent, i); err != nil {
			return driver.Unknown, err
		}
	}
	return o, nil
}

// journal reads the rows that writes need, in the order of their numbers.
func (t *txn) journal(h driver.Hold, hash []byte, w []driver.StepWrite) (rows []driver.Step, err error) {
	add := func(v []sqldriver.Value) error {
		st, err := scanStep(v)
		rows = append(rows, st)
		return err
	}
	names := []string{""}
	for i := range w {
		names = append(names, w[i].Name)
	}
	slices.Sort(names)
	version := []byte(h.Version)
	for _, name := range slices.Compact(names) {
		if err := t.s.query(add, sqlStep, hash, int64(h.Epoch), version, name); err != nil {
			return nil, err
		}
	}
	if err := t.s.query(add, sqlStepLast, hash, int64(h.Epoch), version); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b driver.Step) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(rows, func(a, b driver.Step) bool { return a.Seq == b.Seq }), nil
}

func (t *txn) putStep(h *driver.Hold, hash []byte, s *driver.Step) error {
	_, err := t.s.exec(sqlStepPut, hash, int64(h.Epoch), []byte(h.Version), s.Name, int64(s.State), flag(s.Undo), int64(s.Seq),
		int64(s.Token), s.Nonce[:], bytesOrNull(s.Result), int64(s.Failures), s.Reason, micro(s.UpdatedAt))
	return err
}

// scanStep reads stepColumns.
func scanStep[V any](v []V) (driver.Step, error) {
	num := func(i int) int64 { return integer(any(v[i])) }
	s := driver.Step{
		Name: text(any(v[0])), State: driver.StepState(num(1)), Undo: num(2) != 0, Seq: int(num(3)), Token: uint64(num(4)),
		Result: blob(any(v[6])), Failures: int(num(7)), Reason: text(any(v[8])), UpdatedAt: fromMicro(num(9)),
	}
	copy(s.Nonce[:], blob(any(v[5])))
	if s.State > driver.RunCompensating {
		return s, fmt.Errorf("step %q: state %d is unknown", s.Name, num(1))
	}
	return s, nil
}

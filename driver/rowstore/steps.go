package rowstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/semel-dev/semel/driver"
)

const (
	stepColumns = "name, state, `undo`, seq, token, nonce, result, failures, reason, updated_at"
	// ofRun selects the rows of a run. Its parameters are those of runArgs.
	ofRun = " WHERE place = ? AND epoch = ? AND version = ?"
)

func runArgs(h *driver.Hold, more ...any) []any {
	return append([]any{PlaceOf(&h.Key), int64(h.Epoch), []byte(h.Version)}, more...)
}

// Steps reads the journal of a run. See [driver.StepStore].
func (s *Store) Steps(ctx context.Context, h driver.Hold) (out []driver.Step, err error) {
	err = s.db.Read(ctx, readStep(&out), "SELECT "+stepColumns+" FROM semel_step"+ofRun+" ORDER BY seq", runArgs(&h)...)
	return out, Wrap(err, "read steps of key %q", h.Key.Raw)
}

func readStep(out *[]driver.Step) func(Row) error {
	return func(r Row) error {
		s := driver.Step{
			Name: r.Text(0), State: driver.StepState(r.Int(1)), Undo: r.Flag(2), Seq: int(r.Int(3)), Token: uint64(r.Int(4)),
			Nonce: r.nonce(5), Result: r.Bytes(6), Failures: int(r.Int(7)), Reason: r.Text(8), UpdatedAt: r.Time(9),
		}
		if s.State < driver.StepRegistered || s.State > driver.RunCompensating {
			return fmt.Errorf("step %q: state %d is unknown", s.Name, r.Int(1))
		}
		*out = append(*out, s)
		return nil
	}
}

// WriteSteps writes rows of a journal and their effects in one transaction. Effects come after all rows.
// See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (o driver.Outcome, err error) {
	works := make([]driver.Work, len(w))
	for i := range w {
		works[i].Effects = w[i].Effects
		if err := s.layout.Check(&works[i]); err != nil {
			return driver.Unknown, fmt.Errorf("write steps: %w", &driver.ItemError{Index: i, Err: err})
		}
	}
	err = s.db.Atomic(ctx, len(w), func(tx Tx) error {
		l, err := lockOne(tx, &h.Key)
		if err != nil {
			return err
		}
		rows, err := journal(tx, &h, w)
		if err != nil {
			return err
		}
		var put []driver.Step
		var effects []int
		put, effects, o = driver.DecideSteps(l.Record, rows, h, w, l.Now)
		if len(put) > 0 && h.Version != "" { // journals of superseded versions
			if err := tx.Exec("DELETE FROM semel_step WHERE place = ? AND version < ?", PlaceOf(&h.Key), []byte(h.Version)); err != nil {
				return err
			}
		}
		for i := range put {
			known := slices.ContainsFunc(rows, func(s driver.Step) bool { return s.Name == put[i].Name })
			if err := putStep(tx, &h, &put[i], known); err != nil {
				return fmt.Errorf("step %q: %w", put[i].Name, err)
			}
		}
		if len(effects) == 0 {
			return nil
		}
		return tx.Works(works, effects)
	})
	if err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
	}
	return o, nil
}

// journal reads the rows that writes need, in the order of their numbers: the rows of the named steps, the run's own row, and
// the row with the greatest number.
func journal(tx Tx, h *driver.Hold, w []driver.StepWrite) (rows []driver.Step, err error) {
	names := []any{""}
	for i := range w {
		if w[i].Name != "" {
			names = append(names, w[i].Name)
		}
	}
	args := append(runArgs(h, names...), runArgs(h)...)
	err = tx.Query(readStep(&rows), "SELECT "+stepColumns+" FROM semel_step"+ofRun+" AND (name IN (?"+
		strings.Repeat(", ?", len(names)-1)+") OR seq = (SELECT max(seq) FROM semel_step"+ofRun+")) ORDER BY seq", args...)
	return rows, err
}

func putStep(tx Tx, h *driver.Hold, s *driver.Step, known bool) error {
	values := []any{
		int64(s.State), s.Undo, int64(s.Token), s.Nonce, OrNull(s.Result), int64(s.Failures), Text(s.Reason), s.UpdatedAt,
	}
	if known {
		return tx.Exec("UPDATE semel_step SET state = ?, `undo` = ?, token = ?, nonce = ?, result = ?, failures = ?, reason = ?, "+
			"updated_at = ?"+ofRun+" AND name = ?", append(values, runArgs(h, s.Name)...)...)
	}
	return tx.Exec("INSERT INTO semel_step (state, `undo`, token, nonce, result, failures, reason, updated_at, place, epoch, version, "+
		"name, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", append(values, runArgs(h, s.Name, int64(s.Seq))...)...)
}

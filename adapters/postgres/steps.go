package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	stepColumns = "name, state, undo, seq, token, nonce, result, failures, reason, updated_at"
	// sqlSteps reads a journal. 1 hash 2 epoch 3 version. See semel_journal.
	sqlSteps = "SELECT " + stepColumns + " FROM semel_journal($1, $2, $3, NULL)"
	// sqlStepsOf reads what writes need of it. 4 names
	sqlStepsOf = "SELECT " + stepColumns + " FROM semel_journal($1, $2, $3, $4)"
	// sqlStepsPut writes rows. 1 hash 2 epoch 3 version 4 token 5 nonce 6 time 7 names 8 numbers 9 states 10 undo 11 failures
	// 12 results 13 reasons. See semel_journal_put.
	sqlStepsPut = "SELECT semel_journal_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
	// sqlStepPlain does one write of a run that goes forward. 1 hash 2 token 3 nonce 4 generation 5 epoch 6 version 7 kind
	// 8 name 9 undo 10 result 11 wait. See semel_journal_step.
	sqlStepPlain = "SELECT semel_journal_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)

// maxStepName is the longest name of a step, and the longest version of a run that has steps, in bytes: both are in one
// entry of an index, which holds 2704 bytes (a third of a page).
const maxStepName = 1024

// Steps reads the journal of a run. See [driver.StepStore].
func (s *Store) Steps(ctx context.Context, h driver.Hold) (out []driver.Step, err error) {
	err = s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlSteps, uuid(hashOf(&h.Key)), int32(h.Epoch), []byte(h.Version))
		if err != nil {
			return err
		}
		out, err = readSteps(rows)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps of key %q: %w", h.Key.Raw, err)
	}
	return out, nil
}

func readSteps(rows pgx.Rows) (out []driver.Step, err error) {
	defer rows.Close()
	for rows.Next() {
		var (
			s            driver.Step
			name, reason []byte
			state        int16
			token        int64
		)
		err := rows.Scan(&name, &state, &s.Undo, &s.Seq, &token, (*[16]byte)(&s.Nonce), &s.Result, &s.Failures, &reason,
			&s.UpdatedAt)
		if err != nil {
			return nil, err
		}
		if state < 1 || driver.StepState(state) > driver.RunCompensating {
			return nil, fmt.Errorf("step %q: state %d is unknown", name, state)
		}
		s.Name, s.State, s.Token, s.Reason = string(name), driver.StepState(state), uint64(token), string(reason)
		out = append(out, s)
	}
	return out, rows.Err()
}

// stepping is one call of WriteSteps.
type stepping struct {
	db   *DB
	h    driver.Hold
	hash [16]byte
	w    []driver.StepWrite
	o    driver.Outcome
	// effects are the indexes of the writes whose effects are to be done.
	effects []int
}

// WriteSteps writes rows of a journal with the effects that belong to them, in one transaction: one round trip while the
// run goes forward and nothing is repeated, else two, and one more when a statement must change a certain number of rows.
// Effects come after all rows. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	x := &stepping{db: s.db, h: h, hash: hashOf(&h.Key), w: w}
	for i := range w {
		if err := x.check(&w[i]); err != nil {
			return driver.Unknown, fmt.Errorf("write steps: %w", &driver.ItemError{Index: i, Err: err})
		}
	}
	if err := x.run(ctx); err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
	}
	return x.o, nil
}

func (x *stepping) check(w *driver.StepWrite) error {
	if _, ok := w.Effects.(*driver.Statements); !ok && w.Effects != nil {
		return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
	}
	for i, st := range stepEffects(w) {
		if err := checkStatement(st.SQL); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	if n := len(w.Name); n > maxStepName {
		return fmt.Errorf("name %q of a step has %d bytes, must have %d at most", head(w.Name), n, maxStepName)
	}
	if n := len(x.h.Version); n > maxStepName {
		return fmt.Errorf("version of a run with steps has %d bytes, must have %d at most", n, maxStepName)
	}
	return nil
}

func stepEffects(w *driver.StepWrite) []driver.Statement {
	if e, _ := w.Effects.(*driver.Statements); e != nil {
		return e.List
	}
	return nil
}

func (x *stepping) run(ctx context.Context) error {
	err := error(nil)
	fast := x.isPlain()
	if fast {
		x.o = driver.Applied
		err = x.plain(ctx)
	}
	if !fast || code(err) == codeGuard {
		err = x.careful(ctx, x.send)
	}
	if blameless(err) {
		err = x.careful(ctx, x.oneByOne)
	}
	return err
}

// isPlain reports writes that semel_journal_step can do.
func (x *stepping) isPlain() bool {
	for i := range x.w {
		w := &x.w[i]
		forward := w.Kind == driver.RegisterStep || w.Kind == driver.StartStep || w.Kind == driver.FinishStep
		if !forward || w.Again || w.Name == "" || w.Effects != nil && w.Kind != driver.FinishStep {
			return false
		}
	}
	return len(x.w) > 0
}

func (x *stepping) plainArgs(w *driver.StepWrite) []any {
	undo, result := w.Undo && w.Kind == driver.RegisterStep, []byte(nil)
	if w.Kind == driver.FinishStep {
		result = bytesOrNull(w.Result)
	}
	return []any{
		uuid(x.hash), int64(x.h.Token), uuid(x.h.Nonce), int32(x.h.Generation), int32(x.h.Epoch), []byte(x.h.Version),
		int16(w.Kind), []byte(w.Name), undo, result, millis(x.db.o.LockWait),
	}
}

func (x *stepping) plain(ctx context.Context) error {
	if len(x.w) == 1 && x.w[0].Effects == nil {
		none := func(rows pgx.Rows) error { rows.Close(); return rows.Err() }
		return x.db.ask(ctx, "write a step", none, sqlStepPlain, x.plainArgs(&x.w[0])...)
	}
	p := &pipeline{}
	p.beginLong(x.db)
	x.effects = x.effects[:0]
	for i := range x.w {
		p.exec("write a step", sqlStepPlain, x.plainArgs(&x.w[i])...)
		x.effects = append(x.effects, i)
	}
	return x.with(ctx, func(conn *pgxpool.Conn) error { return x.send(ctx, p, conn) })
}

// careful locks the record, lets the table decide, and has write send the effects.
func (x *stepping) careful(ctx context.Context, write writer) error {
	return x.with(ctx, func(conn *pgxpool.Conn) error {
		locked := make([]rowstore.Locked, 1)
		var rows []driver.Step
		p := &pipeline{}
		p.beginLong(x.db)
		x.db.addLock(p, sortKeys(1, func(int) *driver.Key { return &x.h.Key }), false, locked)
		p.query("read steps", func(r pgx.Rows) (err error) { rows, err = readSteps(r); return err }, sqlStepsOf,
			uuid(x.hash), int32(x.h.Epoch), []byte(x.h.Version), x.names())
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		l := &locked[0]
		if l.Err != nil {
			return l.Err
		}
		if l.Record.Key != x.h.Key {
			x.o, x.effects = driver.Lost, nil
			return write(ctx, &pipeline{}, conn)
		}
		var put []driver.Step
		put, x.effects, x.o = driver.DecideSteps(l.Record, rows, x.h, x.w, l.Now)
		p = &pipeline{}
		x.addRows(p, put)
		return write(ctx, p, conn)
	})
}

// names are those of the rows that the table has to see.
func (x *stepping) names() bytess {
	names := []string{""}
	for i := range x.w {
		names = append(names, x.w[i].Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := make(bytess, len(names))
	for i, n := range names {
		out[i] = []byte(n)
	}
	return out
}

// addRows adds the statements that write rows; there are several when the results are long.
func (x *stepping) addRows(p *pipeline, put []driver.Step) {
	all := keyed{hashes: make(uuids, len(put)), index: make([]int, len(put))}
	for i := range all.index {
		all.index[i] = i
	}
	for _, c := range all.chunks(func(i int) int { return len(put[i].Result) }) {
		n := len(c.index)
		names, results, reasons := make(bytess, n), make(bytess, n), make(bytess, n)
		numbers, failures := make(int32s, n), make(int32s, n)
		states, undos := make(int16s, n), make(int16s, n)
		for at, i := range c.index {
			s := &put[i]
			names[at], results[at], reasons[at] = []byte(s.Name), bytesOrNull(s.Result), bytesOrNull(s.Reason)
			numbers[at], failures[at] = int32(s.Seq), int32(s.Failures)
			states[at], undos[at] = int16(s.State), bit(s.Undo, 1)
		}
		p.exec("write steps", sqlStepsPut, uuid(x.hash), int32(x.h.Epoch), []byte(x.h.Version), int64(x.h.Token),
			uuid(x.h.Nonce), put[0].UpdatedAt, names, numbers, states, undos, failures, results, reasons)
	}
}

// send adds the effects, and commits.
func (x *stepping) send(ctx context.Context, p *pipeline, conn *pgxpool.Conn) error {
	x.limit(ctx, p)
	counted, e := false, effects{db: x.db, p: p}
	for _, i := range x.effects {
		list := stepEffects(&x.w[i])
		e.add(i, list)
		counted = counted || slices.ContainsFunc(list, func(s driver.Statement) bool { return s.Rows >= 0 })
	}
	e.close()
	if counted { // COMMIT in the same pipeline would not wait for us to count
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		p = &pipeline{}
	}
	p.commit()
	return p.run(ctx, conn)
}

// limit bounds the effects, if there are any: those of one run.
func (x *stepping) limit(ctx context.Context, p *pipeline) {
	if len(x.effects) > 0 {
		p.limit(ctx, x.db, true)
	}
}

// hasEffects reports that a write has statements.
func (x *stepping) hasEffects() bool {
	return slices.ContainsFunc(x.w, func(w driver.StepWrite) bool { return len(stepEffects(&w)) > 0 })
}

// with lends a connection to fn.
func (x *stepping) with(ctx context.Context, fn func(conn *pgxpool.Conn) error) error {
	if x.hasEffects() {
		return x.db.withEffects(ctx, fn)
	}
	return x.db.with(ctx, fn)
}

// oneByOne is send for effects that were refused, and nobody could be named: deferred constraints are checked after each
// write, and arguments that cannot be sent are found one at a time.
func (x *stepping) oneByOne(ctx context.Context, p *pipeline, conn *pgxpool.Conn) error {
	x.limit(ctx, p)
	limits := p.limits
	if err := p.run(ctx, conn); err != nil {
		return err
	}
	for _, i := range x.effects {
		if err := limits.runEffects(ctx, conn, i, stepEffects(&x.w[i])); err != nil {
			return err
		}
	}
	p = &pipeline{}
	p.commit()
	err := p.run(ctx, conn)
	if len(x.effects) > 0 && blameless(err) {
		return &driver.ItemError{Index: x.effects[len(x.effects)-1], Err: err}
	}
	return err
}

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"

	"github.com/semel-dev/semel/driver/sqltext"
)

// Store keeps idempotency records. The plain case of every operation is one guarded statement, sent in one round trip. The
// driver's Decide functions decide the others while the records are locked. Package rowstore does the rest.
type Store struct {
	*slowPath
	*workers
	db *DB
}

// maxResult is the largest result: a value of PostgreSQL, and a message of its protocol, ends at 1 GiB, and a replay has to
// carry it. flushBytes bounds the results in one statement.
const (
	maxResult  = 64 << 20
	flushBytes = 64 << 20
)

// slowPath and workers are embedded under names that programs do not see.
type (
	slowPath = rowstore.Store
	workers  = rowstore.Workers
)

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store {
	return &Store{rowstore.New(rows{db}), rowstore.NewWorkers(rows{db}), db}
}

// Features describes the store. Caveats lists settings of the server, as Open found them, that weaken the guarantee.
func (s *Store) Features() driver.StoreFeatures {
	durable, caveats := s.db.caveats()
	return driver.StoreFeatures{
		Name: s.db.name, Kind: "postgres", Durable: durable, Caveats: caveats, ServerClock: true, Emits: true,
		MaxTx: s.db.o.MaxTx, MaxResult: maxResult, ListsUncertain: true, ClaimsAtCommit: true,
	}
}

var (
	_ driver.Transactor      = (*Store)(nil)
	_ driver.TxClassifier    = (*transaction)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
	_ driver.Historian       = (*Store)(nil)
)

// sqlStepPlain does one write of a run that goes forward. 1 place 2 token 3 nonce 4 generation 5 epoch 6 version 7 kind
// 8 name 9 undo 10 result 11 wait. See semel_journal_step.
const sqlStepPlain = "SELECT semel_journal_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

// maxStepName is the longest name of a step, and the longest version of a run with steps, in bytes. Both are in one index
// entry, which holds 2704 bytes (a third of a page).
const maxStepName = 1024

// WriteSteps writes rows of a journal with their effects in one transaction: one round trip while the run goes forward and
// nothing is repeated, and one more when a statement must change a certain number of rows. Else the table decides. Effects
// come after all rows. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	works := make([]driver.Work, len(w))
	for i := range w {
		works[i].Effects = w[i].Effects
		if err := s.db.checkStep(&h, &w[i], &works[i]); err != nil {
			return driver.Unknown, fmt.Errorf("write steps: %w", &driver.ItemError{Index: i, Err: err})
		}
	}
	if !isForward(w) {
		return s.slowPath.WriteSteps(ctx, h, w...)
	}
	var err error
	if place := placeOf(&h.Key); len(w) == 1 && w[0].Effects == nil {
		none := func(rows pgx.Rows) error { rows.Close(); return rows.Err() }
		err = s.db.ask(ctx, "write a step", none, sqlStepPlain, s.db.stepArgs(place, &h, &w[0])...)
	} else {
		err = rows{s.db}.try(ctx, false, func(x *rowTx) error {
			x.p.beginLong(s.db)
			for i := range w {
				x.p.exec("write a step", sqlStepPlain, s.db.stepArgs(place, &h, &w[i])...)
			}
			return x.Works(works, indexes(works))
		})
	}
	switch {
	case err == nil:
		return driver.Applied, nil
	case code(err) == codeGuard || blameless(err):
		return s.slowPath.WriteSteps(ctx, h, w...)
	}
	return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
}

func (db *DB) checkStep(h *driver.Hold, w *driver.StepWrite, effects *driver.Work) error {
	if err := db.checkWork(effects); err != nil {
		return err
	}
	if n := len(w.Name); n > maxStepName {
		return fmt.Errorf("name %q of a step has %d bytes, must have %d at most", sqltext.Head(w.Name), n, maxStepName)
	}
	if n := len(h.Version); n > maxStepName {
		return fmt.Errorf("version of a run with steps has %d bytes, must have %d at most", n, maxStepName)
	}
	return nil
}

// isForward reports writes that semel_journal_step can do.
func isForward(w []driver.StepWrite) bool {
	for i := range w {
		w := &w[i]
		forward := w.Kind == driver.RegisterStep || w.Kind == driver.StartStep || w.Kind == driver.FinishStep
		if !forward || w.Again || w.Name == "" || w.Effects != nil && w.Kind != driver.FinishStep {
			return false
		}
	}
	return len(w) > 0
}

func (db *DB) stepArgs(place []byte, h *driver.Hold, w *driver.StepWrite) []any {
	undo, result := w.Undo && w.Kind == driver.RegisterStep, []byte(nil)
	if w.Kind == driver.FinishStep {
		result = bytesOrNull(w.Result)
	}
	return []any{
		place, int64(h.Token), uuid(h.Nonce), int32(h.Generation), int32(h.Epoch), []byte(h.Version),
		int16(w.Kind), []byte(w.Name), undo, result, millis(db.o.LockWait),
	}
}

// sqlDuplicatesAdd adds duplicates. 1 places 2 times 3 message ids 4 workers 5 queues 6 delivery counts 7 decisions 8 causes
// 9 how many of each key are kept
const sqlDuplicatesAdd = "SELECT semel_add_duplicates($1, $2, $3, $4, $5, $6, $7, $8, $9)"

// AddDuplicates appends duplicates of keys that have a record, in one transaction of its own. It waits at most 200 ms for a
// lock. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	var (
		places, ids, workers, queues, decisions, causes bytess
		ats                                             stamps
		counts                                          int32s
	)
	for i := range ds {
		d := &ds[i]
		places, ats, counts = append(places, placeOf(&d.Key)), append(ats, d.At), append(counts, int32(d.Count))
		ids, workers, queues = append(ids, []byte(d.MessageID)), append(workers, []byte(d.Worker)), append(queues, []byte(d.Queue))
		decisions, causes = append(decisions, []byte(d.Decision)), append(causes, []byte(d.Cause))
	}
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, sqlDuplicatesAdd, places, ats, ids, workers, queues, counts, decisions, causes,
			int32(driver.MaxDuplicates))
		return err
	})
	return rowstore.Wrap(err, "add duplicates")
}

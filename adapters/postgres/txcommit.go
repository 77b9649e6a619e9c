package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// Commit writes the works and commits, in one round trip. The transaction has ended afterwards, even after an error.
func (x *transaction) Commit(ctx context.Context, w ...driver.Work) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return fmt.Errorf("commit: %w", pgx.ErrTxClosed)
	}
	err := x.commit(ctx, w)
	x.end(ctx)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	out := slices.Repeat([]driver.Outcome{driver.Applied}, len(w))
	for i := range w {
		if f := &w[i].Finish; f.Final == driver.Complete {
			x.s.db.keep.Store(micros(f.Keep))
		}
	}
	x.s.db.written(w, out)
	return nil
}

func (x *transaction) commit(ctx context.Context, w []driver.Work) error {
	if err := x.s.db.checkWorks(ctx, w, true); err != nil {
		return err
	}
	works, err := x.held.Works(w)
	if err != nil {
		return err
	}
	if err := x.recall(w); err != nil {
		return err
	}
	all, p := indexes(w), &pipeline{}
	p.exec("look whether the transaction is open", x.s.db.sqlTake(), x.id, millis(x.s.db.o.MaxTx), x.s.db.info.names, x.s.db.info.values)
	if err := x.addRecords(p, w, works); err != nil {
		return err
	}
	if slices.ContainsFunc(w, func(w driver.Work) bool { return len(statements(&w)) > 0 }) {
		p.limit(ctx, x.s.db, len(w) == 1)
	}
	if err := x.s.db.addWorks(ctx, p, joinItem, w, all); err != nil {
		return notSent(err)
	}
	if counts(w, all) {
		if err := p.run(ctx, x.conn); err != nil {
			x.s.db.forgetQueues(err)
			return x.blame(w, wrote(err))
		}
		p = &pipeline{}
	}
	x.s.db.commitLent(p)
	err = p.run(ctx, x.conn)
	x.cleaned = err == nil
	x.s.db.forgetQueues(err)
	return x.blame(w, wrote(err))
}

// addRecords adds the ends of the records. Each statement fails on the server unless it finds all of them.
func (x *transaction) addRecords(p *pipeline, w []driver.Work, works []int) error {
	now := x.at
	for i := range x.held.Claims {
		if at := x.held.Claims[i].After.UpdatedAt; at.After(now) {
			now = at
		}
	}
	now = now.Add(time.Since(x.began))
	var (
		back        keyed // new records without a work
		tokens      int64s
		nonces      uuids
		stored      []driver.Record
		plain, done keyed // completions of records that are IN_PROGRESS, and of those that were written as COMPLETED
	)
	for i := range x.held.Claims {
		h := &x.held.Claims[i]
		at, made := works[i], h.Before == nil
		if at < 0 {
			if !made {
				stored = append(stored, *h.Before)
				continue
			}
			back.places = append(back.places, placeOf(&h.After.Key))
			tokens, nonces = append(tokens, int64(h.After.Token)), append(nonces, h.After.Nonce)
			continue
		}
		f := &w[at].Finish
		switch {
		case f.Final != driver.Complete || f.Hold.Version != "":
			after, o, _ := driver.DecideFinish(h.After, *f, now)
			if o != driver.Applied {
				return &driver.ItemError{Index: at, Err: fmt.Errorf("the end %q cannot be written: %v", f.Final, o)}
			}
			stored = append(stored, after)
		case x.keep == 0 || !made:
			plain.add(&h.After.Key, at)
		case x.keep != micros(f.Keep) || len(f.Result) > 0 || f.Reason != "":
			done.add(&h.After.Key, at)
		}
	}
	finish := func(i int) *driver.Finish { return &w[i].Finish }
	if len(back.places) > 0 {
		p.exec("take claims back", sqlUnclaim, back.places, tokens, nonces)
	}
	p.store(stored)
	p.complete(plain, finish, driver.InProgress, x.s.db.o.LockWait)
	p.complete(done, finish, driver.Completed, x.s.db.o.LockWait)
	return nil
}

// blame names the culprit of a refused commit, if it is certain. A deferred constraint can belong to any of several
// handlers that shared the transaction: then the engine looks for the culprit.
func (x *transaction) blame(w []driver.Work, err error) error {
	switch {
	case err == nil:
		return nil
	case code(err) == codeForeign:
		return errors.New(err.Error()) // what the handler committed is committed
	case !blameless(err) && code(err) != codeGuard:
		return err
	}
	culprit := -1
	if some := slices.DeleteFunc(indexes(w), func(i int) bool { return len(statements(&w[i])) == 0 }); len(some) == 1 {
		culprit = some[0]
	}
	if len(w) == 1 {
		culprit = 0
	}
	return &driver.ItemError{Index: culprit, Err: err}
}

// indexes are those of all works.
func indexes(w []driver.Work) []int {
	all := make([]int, len(w))
	for i := range all {
		all[i] = i
	}
	return all
}

package front

import (
	"context"

	"github.com/semel-dev/semel/driver"
)

// An interface that the store does not have must not be there at all, because callers ask for it by type assertion: hence
// one composition per set of optional interfaces.

// The names under which the compositions embed what they consist of.
type (
	inspector = driver.RecordInspector
	scanner   = driver.RecordScanner
	auditLog  = driver.AuditLog
	journal   interface {
		Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error)
		WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error)
	}
)

// admin has the optional interfaces of a store that are not about committing; nil where the store has none.
type admin struct {
	i inspector
	s scanner
	o *operator
	a auditLog
}

func adminOf(c *cache) (a admin) {
	a.i, _ = c.store.(driver.RecordInspector)
	a.s, _ = c.store.(driver.RecordScanner)
	a.a, _ = c.store.(driver.AuditLog)
	if o, ok := c.store.(driver.Operator); ok {
		a.o = &operator{o, c}
	}
	return a
}

// set numbers the combinations: 0 to 2 for reading records, 3 for operating, 6 for operating with a trail.
func (a admin) set() (n int) {
	if a.i != nil {
		n = 1
		if a.s != nil {
			n = 2
		}
	}
	if a.o != nil {
		n += 3
		if a.a != nil {
			n += 3
		}
	}
	return n
}

func compose(c *cache) driver.Store {
	a := adminOf(c)
	j, steps := c.store.(driver.StepStore)
	inner, commits := c.store.(driver.Committer)
	tx, opens := c.store.(driver.Transactor)
	com := &committer{c, inner}
	switch {
	case opens && steps:
		return a.stepTransactor(&transactor{com, tx}, j)
	case opens:
		return a.transactor(&transactor{com, tx})
	case commits && steps:
		return a.stepCommitter(com, j)
	case commits:
		return a.committer(com)
	case steps:
		return a.stepStore(c, j)
	}
	return a.plain(c)
}

func (a admin) plain(b *cache) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*cache
			inspector
		}{b, a.i}
	case 2:
		return struct {
			*cache
			inspector
			scanner
		}{b, a.i, a.s}
	case 3:
		return struct {
			*cache
			*operator
		}{b, a.o}
	case 4:
		return struct {
			*cache
			inspector
			*operator
		}{b, a.i, a.o}
	case 5:
		return struct {
			*cache
			inspector
			scanner
			*operator
		}{b, a.i, a.s, a.o}
	case 6:
		return struct {
			*cache
			*operator
			auditLog
		}{b, a.o, a.a}
	case 7:
		return struct {
			*cache
			inspector
			*operator
			auditLog
		}{b, a.i, a.o, a.a}
	case 8:
		return struct {
			*cache
			inspector
			scanner
			*operator
			auditLog
		}{b, a.i, a.s, a.o, a.a}
	}
	return b
}

func (a admin) stepStore(b *cache, j journal) driver.Store {
	switch a.set() {
	case 1:
		return struct {
			*cache
			journal
			inspector
		}{b, j, a.i}
	case 2:
		return struct {
			*cache
			journal
			inspector
			scanner
		}{b, j, a.i, a.s}
	case 3:
		return struct {
			*cache
			journal
			*operator
		}{b, j, a.o}
	case 4:
		return struct {
			*cache
			journal
			inspector
			*operator
		}{b, j, a.i, a.o}
	case 5:
		return struct {
			*cache
			journal
			inspector
			scanner
			*operator
		}{b, j, a.i, a.s, a.o}
	case 6:
		return struct {
			*cache
			journal
			*operator
			auditLog
		}{b, j, a.o, a.a}
	case 7:
		return struct {
			*cache
			journal
			inspector
			*operator
			auditLog
		}{b, j, a.i, a.o, a.a}
	case 8:
		return struct {
			*cache
			journal
			inspector
			scanner
			*operator
			auditLog
		}{b, j, a.i, a.s, a.o, a.a}
	}
	return struct {
		*cache
		journal
	}{b, j}
}

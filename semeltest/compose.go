package semeltest

import "github.com/semel-dev/semel/driver"

// An interface that a decorator does not mean to have must not be there at all, because callers ask for it by type
// assertion: hence one composition per set of optional interfaces.

// admin has the optional interfaces of a store that are not about committing; nil where inner has none.
type admin struct {
	i driver.RecordInspector
	o driver.Operator
	w driver.Sweeper
}

func (a admin) bits() (n int) {
	if a.i != nil {
		n |= 1
	}
	if a.o != nil {
		n |= 2
	}
	if a.w != nil {
		n |= 4
	}
	return n
}

func (a admin) withStore(s *faultyStore) driver.Store {
	switch a.bits() {
	case 1:
		return struct {
			driver.Store
			driver.RecordInspector
		}{s, a.i}
	case 2:
		return struct {
			driver.Store
			driver.Operator
		}{s, a.o}
	case 3:
		return struct {
			driver.Store
			driver.RecordInspector
			driver.Operator
		}{s, a.i, a.o}
	case 4:
		return struct {
			driver.Store
			driver.Sweeper
		}{s, a.w}
	case 5:
		return struct {
			driver.Store
			driver.RecordInspector
			driver.Sweeper
		}{s, a.i, a.w}
	case 6:
		return struct {
			driver.Store
			driver.Operator
			driver.Sweeper
		}{s, a.o, a.w}
	case 7:
		return struct {
			driver.Store
			driver.RecordInspector
			driver.Operator
			driver.Sweeper
		}{s, a.i, a.o, a.w}
	}
	return s
}

func (a admin) withCommitter(s *faultyCommitter) driver.Store {
	switch a.bits() {
	case 1:
		return struct {
			driver.Committer
			driver.RecordInspector
		}{s, a.i}
	case 2:
		return struct {
			driver.Committer
			driver.Operator
		}{s, a.o}
	case 3:
		return struct {
			driver.Committer
			driver.RecordInspector
			driver.Operator
		}{s, a.i, a.o}
	case 4:
		return struct {
			driver.Committer
			driver.Sweeper
		}{s, a.w}
	case 5:
		return struct {
			driver.Committer
			driver.RecordInspector
			driver.Sweeper
		}{s, a.i, a.w}
	case 6:
		return struct {
			driver.Committer
			driver.Operator
			driver.Sweeper
		}{s, a.o, a.w}
	case 7:
		return struct {
			driver.Committer
			driver.RecordInspector
			driver.Operator
			driver.Sweeper
		}{s, a.i, a.o, a.w}
	}
	return s
}

func (a admin) withTransactor(s *faultyTransactor) driver.Store {
	switch a.bits() {
	case 1:
		return struct {
			driver.Transactor
			driver.RecordInspector
		}{s, a.i}
	case 2:
		return struct {
			driver.Transactor
			driver.Operator
		}{s, a.o}
	case 3:
		return struct {
			driver.Transactor
			driver.RecordInspector
			driver.Operator
		}{s, a.i, a.o}
	case 4:
		return struct {
			driver.Transactor
			driver.Sweeper
		}{s, a.w}
	case 5:
		return struct {
			driver.Transactor
			driver.RecordInspector
			driver.Sweeper
		}{s, a.i, a.w}
	case 6:
		return struct {
			driver.Transactor
			driver.Operator
			driver.Sweeper
		}{s, a.o, a.w}
	case 7:
		return struct {
			driver.Transactor
			driver.RecordInspector
			driver.Operator
			driver.Sweeper
		}{s, a.i, a.o, a.w}
	}
	return s
}

// wrapper is a queue that decorates another.
type wrapper interface {
	driver.Queue
	Unwrap() driver.Queue
}

func compose(q wrapper, s driver.Sender, i driver.QueueInspector, b driver.LetterBox) driver.Queue {
	switch {
	case s != nil && i != nil && b != nil:
		return struct {
			wrapper
			driver.Sender
			driver.QueueInspector
			driver.LetterBox
		}{q, s, i, b}
	case i != nil && b != nil:
		return struct {
			wrapper
			driver.QueueInspector
			driver.LetterBox
		}{q, i, b}
	case s != nil && b != nil:
		return struct {
			wrapper
			driver.Sender
			driver.LetterBox
		}{q, s, b}
	case b != nil:
		return struct {
			wrapper
			driver.LetterBox
		}{q, b}
	case s != nil && i != nil:
		return struct {
			wrapper
			driver.Sender
			driver.QueueInspector
		}{q, s, i}
	case i != nil:
		return struct {
			wrapper
			driver.QueueInspector
		}{q, i}
	case s != nil:
		return struct {
			wrapper
			driver.Sender
		}{q, s}
	}
	return q
}

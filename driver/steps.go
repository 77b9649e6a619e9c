package driver

import (
	"context"
	"slices"
	"time"
)

// This file has the journal of durable steps (mode E, protocol section 7): the progress of a run, stored next to its record
// and guarded by it.

// StepState is how far a step came.
type StepState uint8

// The states of a step. A step without a row has not begun.
const (
	StepRegistered StepState = iota + 1 // its compensation is known, and it may run
	StepStarted                         // it may have had its effect (at-most-once steps only)
	StepDone                            // it had its effect, with Result
	StepUndoing                         // its compensation began
	StepUndone                          // its compensation is done
	// RunCompensating is the state of the run's own row, whose name is "": the run only compensates from now on.
	RunCompensating
)

var stepStateNames = [...]string{"NONE", "REGISTERED", "STARTED", "DONE", "COMP_STARTED", "COMP_DONE", "COMPENSATING"}

func (s StepState) String() string {
	if int(s) >= len(stepStateNames) {
		return "UNKNOWN"
	}
	return stepStateNames[s]
}

// Step is one row of a journal.
type Step struct {
	// Name identifies the step in its run. "" is the row of the run itself.
	Name  string
	State StepState
	// Undo: it has a compensation. Seq is the order in which the rows were made, from 1.
	Undo bool
	Seq  int
	// Token and Nonce are those of the attempt that last wrote the row.
	Token uint64
	Nonce Nonce
	// Result is the result of a finished step. It remains when the step is compensated.
	Result []byte
	// Failures counts the failed compensations. Reason is the error of the last one, or the reason why the run compensates.
	Failures  int
	Reason    string
	UpdatedAt time.Time
}

// StepWriteKind is the kind of a [StepWrite].
type StepWriteKind uint8

// The writes of a journal.
const (
	RegisterStep  StepWriteKind = iota + 1 // before the step may run: Undo. Again: this attempt's run certainly had no effect
	StartStep                              // before an at-most-once step runs. Again: a probe found that it was not applied
	FinishStep                             // Result, Effects
	CompensateRun                          // the run compensates from now on: Reason
	UndoStep                               // before the compensation runs
	FailUndo                               // the compensation failed for the Failures-th time: Reason
	FinishUndo                             // Effects
)

// StepWrite is one write of a journal.
type StepWrite struct {
	Kind   StepWriteKind
	Name   string
	Undo   bool
	Again  bool
	Result []byte
	// Failures is the row's Failures plus one, which identifies a repeated write.
	Failures int
	Reason   string
	// Effects is a buffer that Committer.Offers made, or nil. The effects commit with the row, or not at all. Only FinishStep
	// and FinishUndo have effects.
	Effects any
}

// StepStore is an optional interface of stores that keep journals of steps.
type StepStore interface {
	// Steps reads the journal of a run, in the order of Seq. Key, Epoch and Version of h identify the run. Token and nonce are
	// not compared. Steps reads the latest committed state, not a replica. A run without a journal has no rows.
	Steps(ctx context.Context, h Hold) ([]Step, error)
	// WriteSteps decides writes as [DecideSteps] defines, all of them or none: Applied, Lost or Unknown. An error means
	// Unknown, unless it wraps [ErrNotCommitted] or is an [ItemError], which names the write whose effects were refused.
	// Repeating an applied write returns Applied and does nothing.
	//
	// Journals live as long as their record: a write that purges, expires or erases the record removes the journals of all
	// epochs and versions. Those of superseded versions may be removed as soon as a newer version writes.
	WriteSteps(ctx context.Context, h Hold, w ...StepWrite) (Outcome, error)
}

// DecideSteps decides writes of a journal. The record's token and nonce guard each write. rows is the journal as found, in the
// order of Seq. Rows that w does not name may be left out, except the run's own ("") and the one with the greatest Seq. Store
// the rows in put together with the effects of the writes that effects lists (indexes of w). Both are empty if all writes are
// repetitions. Store nothing unless the outcome is Applied.
//
// DecideSteps also returns Lost for a write that the journal does not allow: a forward step in a run that compensates, or the
// start of a step that may have run. The caller's view of the journal is then out of date, and it must stop.
func DecideSteps(r Record, rows []Step, h Hold, w []StepWrite, now time.Time) (put []Step, effects []int, o Outcome) {
	if r.State != InProgress || !r.mine(h) || r.Epoch != h.Epoch {
		return nil, nil, Lost
	}
	j := journal{hold: h, rows: slices.Clone(rows), touched: make([]bool, len(rows), len(rows)+len(w))}
	for i := range w {
		changed, ok := j.decide(&w[i])
		if !ok {
			return nil, nil, Lost
		}
		if changed && w[i].Effects != nil {
			effects = append(effects, i)
		}
	}
	for i, s := range j.rows {
		if j.touched[i] {
			s.UpdatedAt = now
			put = append(put, s)
		}
	}
	return put, effects, Applied
}

// journal holds the rows while writes are decided.
type journal struct {
	hold    Hold
	rows    []Step
	touched []bool
}

func (j *journal) find(name string) int {
	return slices.IndexFunc(j.rows, func(s Step) bool { return s.Name == name })
}

// decide decides one write. ok is false if the journal does not allow it.
func (j *journal) decide(w *StepWrite) (changed, ok bool) {
	name := w.Name
	if (name == "") != (w.Kind == CompensateRun) {
		return false, false
	}
	if w.Effects != nil && w.Kind != FinishStep && w.Kind != FinishUndo {
		return false, false
	}
	backwards := j.find("") >= 0
	i := j.find(name)
	var s Step
	if i >= 0 {
		s = j.rows[i]
	}
	own := s.Token == j.hold.Token && s.Nonce == j.hold.Nonce
	switch {
	case w.Kind == CompensateRun:
		changed, ok = !backwards, true
		s.State, s.Reason = RunCompensating, w.Reason
	case w.Kind >= UndoStep:
		repeated := s.Undo && own && s.repeatsBackward(w)
		changed = !repeated && backwards && s.Undo && s.backward(w, own)
		ok = changed || repeated
	default:
		// A run that compensates cannot go forward again, but repeating an applied write is still allowed.
		repeated := own && s.repeatsForward(w)
		changed = !repeated && !backwards && s.forward(w, own)
		ok = changed || repeated
	}
	if !changed {
		return false, ok
	}
	s.Name, s.Token, s.Nonce = name, j.hold.Token, j.hold.Nonce
	if i < 0 {
		if s.Seq = 1; len(j.rows) > 0 {
			s.Seq = j.rows[len(j.rows)-1].Seq + 1
		}
		j.rows, j.touched = append(j.rows, s), append(j.touched, true)
	} else {
		j.rows[i], j.touched[i] = s, true
	}
	return true, true
}

// repeatsForward reports whether the attempt that last wrote the row has already applied a forward write. It may have written
// more since, because writes of one call are repeated together.
func (s *Step) repeatsForward(w *StepWrite) bool {
	switch w.Kind {
	case RegisterStep:
		known := s.State >= StepRegistered && s.State <= StepDone && (s.Undo || !w.Undo)
		return known && !(w.Again && s.State == StepStarted)
	case StartStep:
		return s.State == StepStarted || s.State == StepDone
	case FinishStep:
		return s.State == StepDone
	}
	return false
}

// forward applies a forward write to the row, which is zero for a step without a row. It returns false if that is not allowed.
func (s *Step) forward(w *StepWrite, own bool) bool {
	switch w.Kind {
	case RegisterStep:
		// Again takes back a start of the same attempt. Only a probe can decide about a start of another attempt.
		if s.State > StepRegistered && !(s.State == StepStarted && w.Again && own) {
			return false
		}
		s.State, s.Undo = StepRegistered, s.Undo || w.Undo
	case StartStep:
		if s.State > StepStarted || s.State == StepStarted && !w.Again {
			return false
		}
		s.State = StepStarted
	case FinishStep:
		if s.State >= StepDone {
			return false
		}
		s.State, s.Result = StepDone, w.Result
	default:
		return false
	}
	return true
}

// repeatsBackward is repeatsForward for writes of a compensation.
func (s *Step) repeatsBackward(w *StepWrite) bool {
	switch w.Kind {
	case UndoStep:
		return s.State == StepUndoing || s.State == StepUndone
	case FailUndo:
		return w.Failures > 0 && w.Failures <= s.Failures
	case FinishUndo:
		return s.State == StepUndone
	}
	return false
}

// backward applies a write of a compensation to the row. It returns false if that is not allowed or repeats a write.
func (s *Step) backward(w *StepWrite, own bool) bool {
	switch w.Kind {
	case UndoStep:
		if s.State == StepUndone {
			return false
		}
		s.State = StepUndoing
	case FailUndo:
		if s.State != StepUndoing || !own || w.Failures != s.Failures+1 {
			return false
		}
		s.Failures, s.Reason = w.Failures, w.Reason
	case FinishUndo:
		if s.State != StepUndoing || !own {
			return false
		}
		s.State = StepUndone
	default:
		return false
	}
	return true
}

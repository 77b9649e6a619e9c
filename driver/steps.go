package driver

import (
	"context"
	"slices"
	"time"
)

// This file is the journal of durable steps (mode E, protocol section 7): what a run wrote down of its progress, beside
// its record and guarded by it.

// StepState is how far a step came.
type StepState uint8

// The states of a step. A step without a row has not begun.
const (
	StepRegistered StepState = iota + 1 // its compensation is known; it may run
	StepStarted                         // it may have had its effect (at-most-once steps only)
	StepDone                            // it had its effect, Result is what it came to
	StepUndoing                         // its compensation began
	StepUndone                          // its compensation is done
	// RunCompensating is the state of the run's own row, whose name is "": the run never goes forward again.
	RunCompensating
)

var stepStateNames = [...]string{"NONE", "REGISTERED", "STARTED", "DONE", "COMP_STARTED", "COMP_DONE", "COMPENSATING"}

func (s StepState) String() string { return stepStateNames[s] }

// Step is one row of a journal.
type Step struct {
	// Name identifies the step in its run; "" is the row of the run itself.
	Name  string
	State StepState
	// Undo: it has a compensation. Seq is the order in which the rows were made, from 1.
	Undo bool
	Seq  int
	// Token and Nonce are those of the attempt that wrote the row last.
	Token  uint64
	Nonce  Nonce
	Result []byte
	// Failures counts the failed compensations; Reason is of the last one, or why the run compensates.
	Failures  int
	Reason    string
	UpdatedAt time.Time
}

// StepWriteKind says what is written of a step.
type StepWriteKind uint8

// The writes of a journal.
const (
	RegisterStep  StepWriteKind = iota + 1 // before the step may run: Undo
	StartStep                              // before an at-most-once step runs; Again after a probe said that it was not applied
	FinishStep                             // Result, Effects
	CompensateRun                          // from here on backwards: Reason
	UndoStep                               // before the compensation runs
	FailUndo                               // the compensation failed: Reason
	FinishUndo                             // Effects
)

// StepWrite is one write of a journal.
type StepWrite struct {
	Kind   StepWriteKind
	Name   string
	Undo   bool
	Again  bool
	Result []byte
	Reason string
	// Effects is a buffer that Committer.Offers made, or nil: they commit with the row, or not at all.
	Effects any
}

// StepStore is an optional interface of stores.
type StepStore interface {
	Store
	// Steps reads the journal of a run, in the order of Seq. The run is named by h's Key, Epoch and Version; neither token
	// nor nonce are compared. It reads what was committed last, never a replica.
	Steps(ctx context.Context, h Hold) ([]Step, error)
	// WriteSteps decides writes as [DecideSteps] says, all of them or none. Applied, Lost or Unknown; an error is Unknown,
	// unless it wraps [ErrNotCommitted], or is an [ItemError], which names the write whose effects were refused. Repeating
	// an applied write answers Applied and does nothing.
	WriteSteps(ctx context.Context, h Hold, w ...StepWrite) (Outcome, error)
}

// DecideSteps decides writes of a journal: every one is guarded by the record's token and nonce. rows is the journal as
// found, in the order of Seq. The rows in put are to be stored, and the effects of the writes that effects names (indexes
// of w) with them; both are empty when the writes are repetitions. Any answer but Applied writes nothing.
func DecideSteps(r Record, rows []Step, h Hold, w []StepWrite, now time.Time) (put []Step, effects []int, o Outcome) {
	if r.State != InProgress || !r.mine(h) || r.Epoch != h.Epoch {
		return nil, nil, Lost
	}
	rows = slices.Clone(rows)
	touched := map[string]bool{}
	for i := range w {
		changed, ok := decideStep(&rows, h, &w[i])
		if !ok {
			return nil, nil, Lost
		}
		if changed {
			touched[w[i].row()] = true
			if w[i].Effects != nil {
				effects = append(effects, i)
			}
		}
	}
	for _, s := range rows {
		if touched[s.Name] {
			s.UpdatedAt = now
			put = append(put, s)
		}
	}
	return put, effects, Applied
}

func (w *StepWrite) row() string {
	if w.Kind == CompensateRun {
		return ""
	}
	return w.Name
}

// decideStep decides one write. ok is false when the journal does not allow it: whoever asks stops.
func decideStep(rows *[]Step, h Hold, w *StepWrite) (changed, ok bool) {
	find := func(name string) int { return slices.IndexFunc(*rows, func(s Step) bool { return s.Name == name }) }
	if (w.Name == "") != (w.Kind == CompensateRun) {
		return false, false
	}
	backwards := find("") >= 0
	i := find(w.row())
	var s Step
	if i >= 0 {
		s = (*rows)[i]
	}
	own := s.Token == h.Token && s.Nonce == h.Nonce
	switch w.Kind {
	case RegisterStep:
		if s.State != 0 {
			return false, !backwards && (s.Undo || !w.Undo || s.State == StepRegistered)
		}
		if backwards {
			return false, false // never forward again
		}
		s = Step{State: StepRegistered, Undo: w.Undo}
	case StartStep:
		switch {
		case backwards:
			return false, false
		case s.State == StepStarted && own && !w.Again:
			return false, true
		case s.State == StepStarted && !w.Again, s.State > StepStarted:
			return false, false
		}
		s.State = StepStarted
	case FinishStep:
		switch {
		case s.State == StepDone && own:
			return false, true
		case backwards, s.State >= StepDone:
			return false, false
		}
		s.State, s.Result = StepDone, w.Result
	case CompensateRun:
		if backwards {
			return false, true
		}
		s = Step{State: RunCompensating, Reason: w.Reason}
	case UndoStep, FailUndo, FinishUndo:
		if !backwards || !s.Undo {
			return false, false
		}
		if s.State == StepUndone {
			return false, w.Kind == FinishUndo
		}
		switch w.Kind {
		case UndoStep:
			s.State = StepUndoing
		case FailUndo:
			s.Failures++
			s.Reason = w.Reason
		case FinishUndo:
			s.State = StepUndone
		}
	default:
		return false, false
	}
	s.Name, s.Token, s.Nonce = w.row(), h.Token, h.Nonce
	if i < 0 {
		s.Seq = len(*rows) + 1
		*rows = append(*rows, s)
	} else {
		(*rows)[i] = s
	}
	return true, true
}

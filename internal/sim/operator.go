package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// task is what an operator does with one dead letter: steps that can be repeated from the start after an interruption.
type task struct {
	deadLetter int
	kind       driver.OperationKind
	as         driver.State
	edited     bool
	rerun      bool // of a completed key, deliberately
	step       int
}

// operatorStep does an operator's next step, or picks a dead letter to begin with.
func (w *simulation) operatorStep(ref int) {
	if ref < 0 {
		w.pickTask()
		return
	}
	a := &w.tasks[ref]
	l := &w.q.deadLetters[a.deadLetter]
	if a.step == 0 && w.st.held[w.row(l.Key.Raw)] != 0 {
		w.push(w.Now+20*time.Millisecond, evAction, -1, ref) // the row is locked by a transaction
		return
	}
	if a.step > 0 && w.Chance(150) {
		a.step = 0 // interrupted: it begins again
		w.push(w.Now+w.Between(time.Millisecond, time.Second), evAction, -1, ref)
		return
	}
	if l.Kind == driver.DeadLetterLate && !w.sc.versions && a.step == 0 && w.taskOnLate(a, l) {
		return
	}
	operate := true
	if w.sc.versions && a.step == 0 && w.mut != mutRedriveBlind {
		done, send := w.taskOnVersion(a, l)
		if done {
			return
		}
		operate = !send
	}
	switch a.step {
	case 0:
		if operate && !w.operate(a, l) {
			if rec := &w.st.recs[w.row(l.Key.Raw)]; rec.State == driver.Completed || rec.Disposed {
				w.q.closeDeadLetter(w, l.ID) // nothing is left to do
				w.pending--
				return
			}
			// No longer the record's dead letter, and no final end. Perhaps this very task opened the record before it was
			// interrupted, and a delivery whose message is gone has claimed it since, or failed it and could not write its
			// dead letter. The message is sent again: one copy too many does no harm, one too few is a loss.
			break
		}
		l.discarded = l.discarded || a.kind == driver.Discard || a.kind == driver.Resolve && a.as == driver.FailedState
		if a.kind == driver.Discard || (a.kind == driver.Resolve && a.as != driver.Released) {
			a.step++ // nothing to send
		}
	case 1:
		m := w.q.msgs[l.msg]
		m.id, m.gone, m.visibleAt, m.rc, m.count = w.q.nextID, false, w.Now, nil, 0
		w.q.nextID++
		if a.edited {
			m.fp = 2
			w.keys[l.key].edited = true
		}
		w.q.add(w, m)
	case 2:
		w.q.closeDeadLetter(w, l.ID)
		w.pending--
		return
	}
	a.step++
	w.push(w.Now+w.Between(time.Millisecond, 50*time.Millisecond), evAction, -1, ref)
}

func (w *simulation) pickTask() {
	if w.Chance(100) {
		w.forceRelease()
		w.pending--
		return
	}
	alive := 0
	for i := range w.q.deadLetters {
		if l := &w.q.deadLetters[i]; l.alive && l.key >= 0 && l.Kind != driver.DeadLetterMismatch {
			alive++
		}
	}
	if alive == 0 {
		w.pending--
		return
	}
	n := w.IntN(alive)
	for i := range w.q.deadLetters {
		l := &w.q.deadLetters[i]
		if !l.alive || l.key < 0 || l.Kind == driver.DeadLetterMismatch {
			continue
		}
		if n--; n < 0 {
			a := task{deadLetter: i, kind: driver.Redrive}
			switch {
			case l.Kind == driver.DeadLetterUncertain:
				a.kind, a.as = driver.Resolve, w.judgeDeadLetter(l)
			case w.Chance(250):
				a.kind = driver.Discard
			default:
				a.edited = w.Chance(200)
			}
			w.tasks = append(w.tasks, a)
			w.operatorStep(len(w.tasks) - 1)
			return
		}
	}
}

// judgeDeadLetter is an operator who checks the world before deciding.
func (w *simulation) judgeDeadLetter(l *qletter) driver.State {
	if w.keys[l.key].effects > 0 {
		return driver.Completed
	}
	if w.Chance(300) {
		return driver.FailedState
	}
	return driver.Released
}

// operate is the record's part of a task. False = Lost.
func (w *simulation) operate(a *task, l *qletter) bool {
	op := driver.Operation{
		Kind: a.kind, Key: l.Key, Token: l.Token, Generation: l.Generation, As: a.as, Keep: keep, Reason: "by a person",
		NewGeneration: a.rerun || w.mut == mutRerunByRedrive && l.Kind == driver.DeadLetterLate,
	}
	if a.edited {
		op.Fingerprint = fpText[2]
	}
	row := w.row(l.Key.Raw)
	if a.rerun && w.st.recs[row].State == driver.Expired {
		w.keys[l.key].reruns++
	}
	return w.operateNow(row, &op)
}

func (w *simulation) operateNow(row int, op *driver.Operation) bool {
	after, o, changed := driver.DecideOperate(w.st.recs[row], *op, w.storeNow(), w.st.drawn+1)
	if w.Trace != nil {
		w.log(w.business(row), "operator: operation %d on %s, token %d, as %v: %v", op.Kind, op.Key.Raw, op.Token, op.As, o)
	}
	if changed {
		w.st.drawn = max(w.st.drawn, after.Token)
		w.st.write(w, row, &after, byOperator)
	}
	return o == driver.Applied
}

// forceRelease takes a claim away from its holder.
func (w *simulation) forceRelease() {
	for i := range w.st.recs {
		if w.st.recs[i].State == driver.InProgress && w.st.held[i] == 0 {
			w.forced = true
			w.operateNow(i, &driver.Operation{Kind: driver.ForceRelease, Key: w.st.recs[i].Key, Keep: keep, Reason: "by force"})
			return
		}
	}
}

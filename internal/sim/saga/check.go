package saga

import "github.com/semel-dev/semel/driver"

// checkCalls: a runner whose write returned Lost makes no further call (law 2, FM63).
func (w *Simulation) checkCalls(r *runner, what string) {
	if r.lost && !r.ghost {
		w.Fail("I15", -1, "token %d lost its key, knew it, and went on to %s", r.hold.Token, what)
	}
}

func (w *Simulation) row(epoch uint32, name string) (driver.Step, bool) {
	for _, s := range w.journals[epoch] {
		if s.Name == name {
			return s, true
		}
	}
	return driver.Step{}, false
}

// checkForward: a step that runs has its compensation registered, and its run does not compensate. A zombie cannot know.
func (w *Simulation) checkForward(r *runner, p *plan) {
	w.checkCalls(r, "step "+p.name)
	if r.ghost || !r.holds() {
		return
	}
	s, known := w.row(r.hold.Epoch, p.name)
	if p.undo && !(known && s.Undo) {
		w.Fail("I20", -1, "step %s runs, and its compensation is not registered", p.name)
	}
	if _, back := w.row(r.hold.Epoch, ""); back {
		w.Fail("I20", -1, "step %s runs after the compensation began", p.name)
	}
	if known && s.State == driver.StepDone {
		w.Fail("I15", -1, "step %s runs although it is done", p.name)
	}
}

// checkBackward: compensations run in reverse, and never before the run is declared to go back.
func (w *Simulation) checkBackward(r *runner, p *plan) {
	w.checkCalls(r, "the compensation of step "+p.name)
	if r.ghost || !r.holds() {
		return
	}
	if _, back := w.row(r.hold.Epoch, ""); !back {
		w.Fail("I20", -1, "step %s is compensated, and the journal does not say that the run goes back", p.name)
	}
	mine, _ := w.row(r.hold.Epoch, p.name)
	for _, s := range w.journals[r.hold.Epoch] {
		if s.Undo && s.Seq > mine.Seq && s.State != driver.StepUndone {
			w.Fail("I20", -1, "step %s is compensated before step %s, which was registered after it", p.name, s.Name)
		}
	}
}

// checkFinish is made when the record was finished.
func (w *Simulation) checkFinish(f *driver.Finish) {
	epoch := f.Hold.Epoch
	_, back := w.row(epoch, "")
	switch {
	case f.Final == driver.Complete:
		w.stats.Completed++
		if back {
			w.Fail("I20", -1, "the run is completed, and it compensates")
		}
		for i := range w.plan {
			if s, _ := w.row(epoch, w.plan[i].name); s.State != driver.StepDone {
				w.Fail("I20", -1, "the run is completed, and step %s is %v", w.plan[i].name, s.State)
			}
		}
	case f.Final == driver.Park:
		w.stats.Parked++
	case f.Final == driver.Fail && f.Compensated:
		w.stats.Compensated++
		for _, s := range w.journals[epoch] {
			if s.Undo && s.State != driver.StepUndone {
				w.Fail("I20", -1, "the run is compensated, and step %s is %v", s.Name, s.State)
			}
			if !s.Undo && s.State == driver.StepStarted {
				w.Fail("I15", -1, "the run is compensated, and it is unknown whether step %s happened", s.Name)
			}
		}
	case f.Final == driver.Fail && back:
		w.Fail("I20", -1, "the run failed half undone")
	case f.Final == driver.Fail:
		for _, s := range w.journals[epoch] {
			if s.Undo {
				w.Fail("I20", -1, "the run failed for good, and step %s is not undone", s.Name)
			}
		}
	}
}

// checkEnd is made when no request is in flight: the journals have to match the world.
func (w *Simulation) checkEnd() {
	for epoch := range w.rec.Epoch + 1 {
		over := epoch < w.rec.Epoch // it was compensated
		for i := range w.plan {
			p := &w.plan[i]
			s, known := w.row(epoch, p.name)
			n := w.count(epoch, p)
			switch {
			case over && known && s.Undo && n != 0:
				w.Fail("I20", -1, "the run of epoch %d is compensated, and step %s stands", epoch, p.name)
			case !over && w.rec.State == driver.Completed && n != 1:
				w.Fail("I20", -1, "the run is completed, and step %s has %d effects", p.name, n)
			case s.State == driver.StepDone && n != 1:
				w.Fail("I15", -1, "step %s is done, and has %d effects", p.name, n)
			}
		}
	}
}

// count is how many effects of a step stand.
func (w *Simulation) count(epoch uint32, p *plan) int {
	n := w.out.ledger[epoch][p.name]
	for _, b := range w.out.bookings { // a sum: the order does not matter
		if b.step == p.name && b.epoch == epoch && !b.undone {
			n += b.times
		}
	}
	return n
}

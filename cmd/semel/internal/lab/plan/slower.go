package plan

import (
	"slices"
	"time"
)

// AboutVisibility reports whether something in the scenario lasts longer than the visibility, so that another worker gets
// the message meanwhile.
func (s Scenario) AboutVisibility() bool {
	long := max(s.Work.Max, s.Work.SlowFor)
	for _, f := range s.Faults {
		if f.Do == Freeze {
			long = max(long, f.For)
		}
	}
	return long >= s.Workers.Visibility
}

// Slower is the scenario with a visibility of at least least: every time that depends on it grows with it, except for
// the timeout and the duration of a wire fault. A scenario whose visibility is long enough stays as it is.
func (s Scenario) Slower(least time.Duration) Scenario {
	was := s.Workers.Visibility
	if was <= 0 || was >= least {
		return s
	}
	grow := func(d time.Duration) time.Duration { return time.Duration(float64(d) * float64(least) / float64(was)) }
	s.Workers.Visibility = least
	s.Load.Faster *= float64(was) / float64(least)
	s.Work.SlowFor = grow(s.Work.SlowFor)
	if s.Work.Max >= was { // work as long as the visibility is about the visibility
		s.Work.Min, s.Work.Max = grow(s.Work.Min), grow(s.Work.Max)
	}
	faults := make([]Fault, len(s.Faults))
	for i, f := range s.Faults {
		f.For = grow(f.For)
		faults[i] = f
	}
	s.Faults = faults
	return s
}

// Stretch is the scenario n times as slow in everything: it then shows on a machine that is n times as slow what it shows
// on a fast one.
func (s Scenario) Stretch(n int) Scenario {
	grow := func(all ...*time.Duration) {
		for _, d := range all {
			*d *= time.Duration(n)
		}
	}
	s.Load.Rate /= float64(n)
	s.Load.Faster /= float64(n)
	grow(&s.Work.Min, &s.Work.Max, &s.Work.SlowFor, &s.Workers.Visibility, &s.Workers.Restart, &s.Workers.Scale.Every,
		&s.Wire.SlowFor, &s.Timeout)
	faults := slices.Clone(s.Faults)
	for i := range faults {
		grow(&faults[i].For)
	}
	s.Faults = faults
	return s
}

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

// AtLeast is the scenario with a visibility of at least least: everything in it is slower by as much.
func (s Scenario) AtLeast(least time.Duration) Scenario {
	if s.Workers.Visibility <= 0 || s.Workers.Visibility >= least {
		return s
	}
	return s.Stretch(float64(least) / float64(s.Workers.Visibility))
}

// Stretch is the scenario n times as slow in everything: it then shows on a machine that is n times as slow what it shows
// on a fast one.
func (s Scenario) Stretch(n float64) Scenario {
	grow := func(all ...*time.Duration) {
		for _, d := range all {
			*d = time.Duration(float64(*d) * n)
		}
	}
	s.Load.Rate /= n
	s.Load.Faster /= n
	grow(&s.Work.Min, &s.Work.Max, &s.Work.SlowFor, &s.Workers.Visibility, &s.Workers.Restart, &s.Workers.Scale.Every,
		&s.Wire.SlowFor, &s.Timeout)
	faults := slices.Clone(s.Faults)
	for i := range faults {
		grow(&faults[i].For)
	}
	s.Faults = faults
	return s
}

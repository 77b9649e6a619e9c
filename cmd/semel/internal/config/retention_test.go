package config

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// TestRetention: one duration, or one per end, and back to the same text.
func TestRetention(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		text, back, bad string
		all             time.Duration // as the engine gets it
		by              semel.Retain
		window          time.Duration // with a horizon of 18 days
	}{
		{text: "14d", back: "14d", all: 14 * day, window: 14 * day},
		{text: "completed=20d,failed=60d", back: "completed=20d,failed=60d", by: semel.Retain{Completed: 20 * day, Failed: 60 * day}, window: 18 * day},
		{
			text: " released=1d, 30d,dropped=36h", back: "30d,dropped=36h,released=1d", all: 30 * day,
			by: semel.Retain{Dropped: 36 * time.Hour, Released: day}, window: day,
		},
		{text: "parked=14d", bad: `"parked" is no end`},
		{text: "14d,15d", bad: "said twice"},
		{text: "failed=1d,failed=2d", bad: "said twice"},
		{text: "0", bad: "must be positive"},
		{text: "failed=0", bad: "must be positive"},
		{text: "failed", bad: "not a duration"},
		{text: "-1d", bad: "negative"},
		{text: "", bad: "not a duration"},
	} {
		var r Retention
		err := r.Set(c.text)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: %v, want an error that says %q", c.text, err, c.bad)
			}
			continue
		}
		var cfg semel.Config
		r.Apply(&cfg)
		if err != nil || cfg.Retention != c.all || cfg.Retain != c.by || r.String() != c.back || r.Window(18*day) != c.window {
			t.Errorf("%q: %v, %v and %+v, back as %q, window %v", c.text, err, cfg.Retention, cfg.Retain, r.String(), r.Window(18*day))
		}
	}
	var r Retention
	var cfg semel.Config
	r.Apply(&cfg)
	if cfg.Retention != 0 || r.String() != "14d" || r.Shown(18*day) != "18d" || r.Window(18*day) != 18*day {
		t.Errorf("not given: %v, %q, shown as %q", cfg.Retention, r.String(), r.Shown(18*day))
	}
	if err := r.Set("15d,failed=60d"); err != nil || r.Of(driver.Completed) != 15*day || r.Of(driver.FailedState) != 60*day ||
		r.Of(driver.Released) != 15*day {
		t.Errorf("of states: %v, %v, %v", r.Of(driver.Completed), r.Of(driver.FailedState), r.Of(driver.Released))
	}
}

// TestFM41_OperatorsKeepRecordsForTheHorizon: what a person ends or reopens outlives the copies of its message, too.
func TestFM41_OperatorsKeepRecordsForTheHorizon(t *testing.T) {
	const day = 24 * time.Hour
	var r Retention
	if d, err := r.For(driver.Completed, 28*day); err != nil || d != 28*day {
		t.Errorf("not given: %v, %v", d, err)
	}
	if d, err := r.For(driver.Completed, 0); err != nil || d != semel.DefaultRetention {
		t.Errorf("not given, no horizon: %v, %v", d, err)
	}
	if err := r.Set("30d,released=20d"); err != nil {
		t.Fatal(err)
	}
	if d, err := r.For(driver.FailedState, 28*day); err != nil || d != 30*day {
		t.Errorf("given: %v, %v", d, err)
	}
	if d, err := r.For(driver.Released, 28*day); err == nil || !strings.Contains(err.Error(), "kept for 20d, and a copy of its message can come 28d") {
		t.Errorf("given, too short: %v, %v", d, err)
	}
}

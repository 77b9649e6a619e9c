package driver_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestDigestsAsNumbers: what is packed comes back, the end to the hour before and the time it is kept to the day after.
func TestDigestsAsNumbers(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 10, time.UTC)
	for _, s := range []driver.State{driver.Completed, driver.FailedState, driver.Released} {
		for _, keep := range []time.Duration{time.Hour, 400 * 24 * time.Hour, 50 * 365 * 24 * time.Hour} {
			d := driver.Digest{Found: true, State: s, At: at, Until: at.Add(keep)}
			n := d.Pack()
			got := driver.UnpackDigest(n)
			if n < 0 || n >= 1<<38 || !got.Found || got.State != s || !got.At.Equal(at.Truncate(time.Hour)) ||
				got.Until.Before(d.Until) || got.Until.Sub(d.Until) >= 24*time.Hour || got.Until.Hour() != 0 {
				t.Errorf("%+v became %+v (%x)", d, got, n)
			}
		}
	}
	if d := driver.UnpackDigest(driver.Digest{At: time.Unix(0, 0), Until: time.Unix(1<<40, 0)}.Pack()); d.At.Year() != 2020 || d.Until.Year() < 2190 {
		t.Errorf("times out of range: %+v", d)
	}
}

// TestFM71_DecideRollOver: no record goes before its digest was announced for the whole overlap.
func TestFM71_DecideRollOver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, x := range []struct {
		announced time.Time
		want      driver.RollOver
	}{
		{time.Time{}, driver.Announce},
		{now, driver.Linger},
		{now.Add(-driver.DigestOverlap), driver.Linger},
		{now.Add(-driver.DigestOverlap - 1), driver.Depart},
		{now.Add(-driver.DigestStale), driver.Depart},
		{now.Add(-driver.DigestStale - 1), driver.Announce},
		{now.Add(time.Second), driver.Announce}, // the clock stepped back
	} {
		if got := driver.DecideRollOver(x.announced, now); got != x.want {
			t.Errorf("announced %v ago: %v, wanted %v", now.Sub(x.announced), got, x.want)
		}
	}
	for s := driver.Absent; s <= driver.Uncertain; s++ {
		for _, unknown := range []bool{false, true} {
			r := driver.Record{State: s, Unknown: unknown}
			want := s == driver.Completed || s == driver.FailedState || s == driver.Released && unknown
			if r.Digested() != want {
				t.Errorf("%v, unknown %v: digested %v", s, unknown, r.Digested())
			}
		}
	}
}

package redeliver

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

var start = time.Unix(1_000_000, 0)

func after(d time.Duration) time.Time { return start.Add(d) }

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		name                      string
		back, wait, visible, want time.Duration
	}{
		{"guard of a second", time.Second, 0, 30 * time.Second, 30 * time.Second},
		{"guard of a tenth", 0, 0, time.Second, 900 * time.Millisecond},
		{"waited its wait", 20 * time.Second, 20 * time.Second, 30 * time.Second, 49 * time.Second},
		{"stopped on the way", 23 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second},
		{"stopped for longer than the visibility", time.Hour, 0, 30 * time.Second, 30 * time.Second},
	} {
		if got := Deadline(start, after(c.back), c.wait, c.visible).Sub(start); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFM18_ReceiptCheck(t *testing.T) {
	const visible = 10 * time.Second
	actions := []driver.Action{driver.Ack, driver.Retry, driver.Defer, driver.Dead}
	always := map[driver.Action]bool{driver.Ack: true, driver.Dead: true}
	for _, a := range actions {
		r := NewReceipt(after(visible))
		if o, known := r.Check(a, after(visible-1)); known {
			t.Errorf("%v before the deadline: %v without a call", a, o)
		}
		switch o, known := r.Check(a, after(visible)); {
		case always[a] && known:
			t.Errorf("%v at the deadline: %v without a call", a, o)
		case !always[a] && (!known || o != driver.Lost):
			t.Errorf("%v at the deadline: %v, %v, want lost without a call", a, o, known)
		}
		r.Settle(a)
		for _, b := range actions {
			want := driver.Lost
			if b == a {
				want = driver.Applied
			}
			if o, known := r.Check(b, after(time.Hour)); !known || o != want {
				t.Errorf("%v after %v: %v, %v, want %v", b, a, o, known, want)
			}
		}
		if r.Held(start) {
			t.Errorf("held after %v", a)
		}
	}
}

func TestFM22_ReceiptExtend(t *testing.T) {
	r := NewReceipt(after(10 * time.Second))
	if !r.Extend(after(20*time.Second), after(9*time.Second)) || !r.Held(after(19*time.Second)) {
		t.Error("an extension that was confirmed in time does not count")
	}
	if r.Extend(after(time.Minute), after(20*time.Second)) || r.Held(after(20*time.Second)) {
		t.Error("an extension that was confirmed at the deadline counts")
	}
}

func TestFM18_ReceiptShorten(t *testing.T) {
	r := NewReceipt(after(10 * time.Second))
	r.Shorten(after(20 * time.Second))
	if !r.Held(after(9*time.Second)) || r.Held(after(10*time.Second)) {
		t.Error("shorten moved the deadline away")
	}
	r.Shorten(after(2 * time.Second))
	if o, known := r.Check(driver.Retry, after(2*time.Second)); !known || o != driver.Lost {
		t.Errorf("repeated past what may have been applied: %v, %v", o, known)
	}
}

func TestReceipt_Zero(t *testing.T) {
	var r Receipt
	if r.Held(time.Now()) {
		t.Error("the zero Receipt is held")
	}
	if r.DeadLetter() != "" {
		t.Error("the zero Receipt has a dead letter")
	}
	if r.SetDeadLetter("a"); r.DeadLetter() != "a" {
		t.Error("the dead letter is forgotten")
	}
}

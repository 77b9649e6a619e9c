package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// beats lets time pass heartbeat by heartbeat.
func (r *fixture) beats(d time.Duration) {
	r.t.Helper()
	for end := r.now + d; r.now < end; {
		r.pass(min(lease/6, end-r.now))
		r.heartbeats()
	}
}

// quarantined receives keys that were taken over that many times, and completes the release of their claims.
func (r *fixture) quarantined(takeovers int, as ...machine.Arrival) {
	r.t.Helper()
	r.receive(as...)
	r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, takeovers) })
	for r.has(machine.ActionFinish) > 0 {
		r.finish(driver.Applied)
	}
}

func (r *fixture) takenOver(g *driver.Grant, n int) {
	g.Takeovers, g.Attempt, g.Unknown, g.Uncertainty = n, n+1, true, n
}

// crashedTwice marks keys whose runs crashed or lost their lease twice.
func crashedTwice(keys ...string) func(string, *driver.Grant) {
	return func(key string, g *driver.Grant) {
		for _, k := range keys {
			if k == key {
				g.Takeovers, g.Attempt, g.Unknown = 2, 3, true
			}
		}
	}
}

func TestFM83_QuarantinedKeyRunsAlone(t *testing.T) {
	r := newFixture(t, nil)
	r.warm()
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"))
	r.claim(crashedTwice("a"))
	if r.has(machine.ActionRun) != 2 {
		t.Fatalf("%d runs, want the two others", r.has(machine.ActionRun))
	}
	// It does not wait with a claim: a neighbour that kills the process would be charged to it.
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.Unstarted || f.Hold.Key.Raw != "a" {
		t.Fatalf("finish %+v", f)
	}
	r.none(machine.ActionSettle, "it stays in flight")
	r.receive(message("4", "d"))
	r.ran("b", machine.Result{})
	r.none(machine.ActionClaim, "nothing is claimed while a key waits for quarantine")
	r.ran("c", machine.Result{})
	if a := r.claim(crashedTwice("a")); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v", a.Claims)
	}
	r.none(machine.ActionClaim, "it runs alone")
	r.ran("a", machine.Result{})
	if a := r.claim(nil); a.Claims[0].Key.Raw != "d" {
		t.Fatalf("claimed %+v", a.Claims)
	}
}

func TestFM83_TwoKeysInQuarantineRunOneAfterTheOther(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"), message("2", "b"))
	r.claim(crashedTwice("a", "b"))
	r.none(machine.ActionRun, "neither may be charged with the other's death")
	r.finish(driver.Applied)
	first := r.claim(crashedTwice("a", "b"))
	if len(first.Claims) != 1 || r.has(machine.ActionRun) != 1 {
		t.Fatalf("%d claims, %d runs", len(first.Claims), r.has(machine.ActionRun))
	}
	r.ran(first.Claims[0].Key.Raw, machine.Result{})
	if second := r.claim(crashedTwice("a", "b")); len(second.Claims) != 1 || second.Claims[0].Key == first.Claims[0].Key {
		t.Fatalf("claimed %+v", second.Claims)
	}
}

func TestFM83_TheOnlyKeyIsQuarantinedAtOnce(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	r.claim(crashedTwice("a"))
	r.none(machine.ActionFinish, "it is alone")
	r.ran("a", machine.Result{})
}

func TestFM83_ExhaustedByTakeoversIsUncertain(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	r.claim(func(_ string, g *driver.Grant) { g.Takeovers, g.Attempt, g.Unknown = 5, 6, true })
	r.none(machine.ActionRun, "its attempts are spent")
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Park {
		t.Fatalf("finish %+v (law 12)", f)
	}
}

func TestFM83_ARunThatOutlivesItsQuarantineLetsOthersIn(t *testing.T) {
	r := newFixture(t, nil)
	r.quarantined(2, deadLetters("a b")...)
	r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2) })
	if got := strings.Join(r.running(), ""); got != "a" {
		t.Fatalf("%q run", got)
	}
	r.receive(message("q", "q"))
	r.beats(lease / 6)
	r.none(machine.ActionClaim, "a is in quarantine")
	r.beats(lease / 2)
	if c := r.claim(nil); len(c.Claims) != 1 || c.Claims[0].Key.Raw != "q" {
		t.Fatalf("claimed %+v", c.Claims)
	}
	r.none(machine.ActionClaim, "b may not be charged with the death of q, which has just started")
	r.beats(2 * lease)
	r.claim(func(key string, g *driver.Grant) { r.takenOver(g, 2) })
	if got := strings.Join(r.running(), ""); got != "aqb" {
		t.Fatalf("%q run: b is next, and the others have run for long", got)
	}
}

// TestFM83_QuarantineDoubles: a key that kills its process late is found too, because its quarantine is longer each time.
func TestFM83_QuarantineDoubles(t *testing.T) {
	for uncertainty, want := range map[int]uint32{0: 1, 2: 1, 3: 2, 5: 8, 1000: 1 << 20} {
		if got := driver.QuarantineBeats(uncertainty); got != want {
			t.Errorf("%d beats after %d runs of unknown outcome, want %d", got, uncertainty, want)
		}
	}
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2); g.Uncertainty = 4 })
	r.receive(message("q", "q"))
	r.beats(lease)
	r.none(machine.ActionClaim, "four heartbeats, and a has outlived three at most")
	r.beats(2 * lease)
	r.take(machine.ActionClaim)
}

// TestFM83_TheLastRunIsAllAlone: the first run in quarantine may start beside runs that have lasted for long. One after which the key
// may be given up may not; but it does not keep the others from their work until they are done.
func TestFM83_TheLastRunIsAllAlone(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("x")
	r.quarantined(3, message("1", "a"))
	r.receive(message("q", "q"))
	r.beats(lease / 2)
	r.none(machine.ActionClaim, "a waits for quiet")
	r.beats(lease)
	if c := r.claim(nil); c.Claims[0].Key.Raw != "q" {
		t.Fatalf("claimed %+v", c.Claims)
	}
	r.ran("x", machine.Result{})
	if got := strings.Join(r.running(), ""); got != "q" {
		t.Fatalf("%q run", got)
	}
	r.ran("q", machine.Result{})
	r.finish(driver.Applied)
	r.beats(2 * lease)
	r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 3) })
	if got := strings.Join(r.running(), ""); got != "a" {
		t.Fatalf("%q run", got)
	}
}

// TestFM83_TurnsAreShared: while others wait, a turn of theirs is as long as the one before.
func TestFM83_TurnsAreShared(t *testing.T) {
	for _, busy := range []bool{true, false} {
		r := newFixture(t, nil)
		r.quarantined(2, deadLetters("a b")...)
		r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2) })
		turn := r.now
		if busy {
			r.receive(message("q", "q"))
		}
		r.beats(lease / 3)
		turn = r.now - turn
		if busy {
			r.claim(nil)
			r.ran("q", machine.Result{})
			r.finish(driver.Applied)
			r.beats(turn / 2)
			r.none(machine.ActionClaim, "it is the others' turn")
			r.beats(turn)
		}
		if c := r.claim(nil); c.Claims[0].Key.Raw != "b" {
			t.Fatalf("busy %v: claimed %+v", busy, c.Claims)
		}
	}
}

// TestFM64_DrainReturnsQuarantine: a key that waits for its turn, or for the outcome of its claim, is returned unstarted.
func TestFM64_DrainReturnsQuarantine(t *testing.T) {
	for _, stage := range []string{"releasing", "waiting", "claiming", "no response"} {
		t.Run(stage, func(t *testing.T) {
			r := newFixture(t, nil)
			r.receive(deadLetters("a b")...)
			r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2) })
			if stage != "releasing" {
				r.finish(driver.Applied)
			}
			if stage == "waiting" {
				r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2) }) // a runs, b waits
			}
			r.step(machine.Event{Kind: machine.Drain})
			switch stage {
			case "releasing":
				r.finish(driver.Applied)
			case "claiming":
				r.claim(func(_ string, g *driver.Grant) { r.takenOver(g, 2) })
				if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.Unstarted {
					t.Fatalf("finished %+v", f)
				}
			case "no response":
				c := r.take(machine.ActionClaim)
				r.step(machine.Event{Kind: machine.Claimed, Items: c.Items, Err: errBoom})
			case "waiting":
				r.ran("a", machine.Result{})
				r.finish(driver.Applied)
			}
			r.receive()
			for r.has(machine.ActionSettle) > 0 {
				for _, s := range r.settle(driver.Applied).Settlements {
					if s.Action != driver.Defer && (stage != "waiting" || s.Receipt != "m-a") {
						t.Fatalf("settled %+v", s)
					}
				}
			}
			r.none(machine.ActionClaim, "it drains")
			if stage != "waiting" {
				r.none(machine.ActionRun, "it drains")
			}
			if a := r.take(machine.ActionStop); a.Stuck != 0 {
				t.Fatalf("%d stuck", a.Stuck)
			}
		})
	}
}

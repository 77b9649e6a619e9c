package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// The store refuses an end with an error that might be an outage. If it writes others meanwhile, that is the message's
// failure: the others are written at once, and its attempts are spent.
func TestFM46_OneRefusedEndIsItsMessagesFailure(t *testing.T) {
	for name, refuse := range map[string]func(works []driver.Work, at int) error{
		"unnamed": func([]driver.Work, int) error { return errRefused },
		"transient": func(_ []driver.Work, at int) error {
			return &driver.ItemError{Index: at, Err: errors.New("XX000"), Transient: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newResponder(t, nil)
			w.end = refuse
			w.send(1, "a", bad, "b", "c")
			for n := 2; len(w.deadLetters) == 0 && n < 20; n++ {
				w.live(2 * time.Second)
				w.send(1, fmt.Sprint("more", n))
				w.live(2 * time.Second)
				if w.done[bad+" fail"] == 0 {
					w.send(n, bad)
				}
			}
			if got := w.healthy(); got < 3 || w.done["a complete"] != 1 {
				t.Errorf("%d healthy messages are done: %v", got, w.done)
			}
			if w.done[bad+" release"] != 2 || w.done[bad+" fail"] != 1 || len(w.deadLetters) != 1 {
				t.Errorf("the refused one: %v, dead letters %v; wanted 2 failed attempts, then a dead letter", w.done, w.deadLetters)
			}
			if w.paused > 0 {
				t.Errorf("polling was paused %d times, though the store writes", w.paused)
			}
		})
	}
}

// Without any other message a refused end is its message's failure too, if the store extends the lease meanwhile. Heartbeats
// do not restart the count.
func TestFM46_RefusedEndOfTheOnlyMessage(t *testing.T) {
	w := newResponder(t, nil)
	w.end = func([]driver.Work, int) error { return errRefused }
	for n := 1; len(w.deadLetters) == 0 && n < 10; n++ {
		w.send(n, bad)
		w.live(2 * lease)
	}
	if w.done[bad+" release"] != 2 || len(w.deadLetters) != 1 {
		t.Errorf("%v, dead letters %v", w.done, w.deadLetters)
	}
}

// A store that cannot write is an outage, however long it lasts and whichever ends are refused alone meanwhile.
func TestFM50_StoreThatCannotWriteSpendsNoAttempt(t *testing.T) {
	w := newResponder(t, nil)
	full := true
	w.end = func(works []driver.Work, at int) error {
		if full {
			return errDisk
		}
		return nil
	}
	w.send(1, bad)
	w.live(5 * time.Minute)
	if len(w.done) > 0 || len(w.deadLetters) > 0 || w.paused == 0 {
		t.Fatalf("%v, dead letters %v, paused %d times", w.done, w.deadLetters, w.paused)
	}
	full = false
	w.live(10 * time.Second)
	if w.done[bad+" complete"] != 1 {
		t.Fatalf("%v after the outage", w.done)
	}
}

// If only the disk that one message writes to is full, that message waits, and the others go on.
func TestFM50_OneFullDiskStopsNoOther(t *testing.T) {
	w := newResponder(t, nil)
	full, writes := true, 0
	w.end = func([]driver.Work, int) error {
		if writes++; full {
			return errDisk
		}
		return nil
	}
	w.send(1, "a", bad, "b")
	for n := range 30 {
		w.live(2 * time.Second)
		w.send(1, fmt.Sprint("more", n))
	}
	if w.healthy() < 30 || len(w.deadLetters) > 0 || w.done[bad+" release"] > 0 || writes > 40 || w.paused > 4 {
		t.Errorf("%d healthy messages, %d writes of the full disk, paused %d times, dead letters %v", w.healthy(), writes, w.paused, w.deadLetters)
	}
	full = false
	w.live(10 * time.Second)
	if w.done[bad+" complete"] != 1 {
		t.Errorf("%v", w.done)
	}
}

// An end that waits for another's lock is put off without spending an attempt, however often. Its reason names the blocker.
func TestFM47_BlockedEndIsPutOff(t *testing.T) {
	w := newResponder(t, nil)
	locked := true
	w.end = func(_ []driver.Work, at int) error {
		if locked {
			return &driver.ItemError{Index: at, Err: fmt.Errorf("%w: held by session 4711", driver.ErrBlocked)}
		}
		return nil
	}
	w.send(1, "a", bad, "b")
	w.live(time.Second)
	if w.healthy() != 2 {
		t.Fatalf("%v: the others wait for the blocked one", w.done)
	}
	for n := 2; n < 12; n++ {
		w.send(n, bad)
		w.live(2 * time.Second)
	}
	if w.done[bad+" release"] != 11 || len(w.deadLetters) > 0 || w.done[bad+" fail"] > 0 {
		t.Fatalf("%v, dead letters %v", w.done, w.deadLetters)
	}
	if r := w.reasons[len(w.reasons)-1]; !strings.Contains(r, "session 4711") {
		t.Errorf("the reason is %q", r)
	}
	locked = false
	w.send(12, bad)
	w.live(time.Second)
	if w.done[bad+" complete"] != 1 {
		t.Fatalf("%v after the lock was released", w.done)
	}
}

// A write that never gets a response does not block the others of its flush: it is repeated alone until its lease has ended,
// and then no more.
func TestFM47_EndWithoutResponseStopsNoOther(t *testing.T) {
	w := newResponder(t, nil)
	w.end = func([]driver.Work, int) error { return errSilent }
	w.send(1, "a", bad, "b")
	for n := range 10 {
		w.live(time.Second)
		if w.has(machine.ActionReceive) > 0 {
			w.send(1, fmt.Sprint("more", n))
		}
	}
	w.live(3 * lease)
	if w.healthy() < 3 || w.done["a complete"] != 1 {
		t.Errorf("%v: the others were kept waiting", w.done)
	}
	if n := w.m.InFlight(); n > 0 || w.m.Counts().Fenced != 1 {
		t.Errorf("%d in flight, counts %+v: the one without a response should have been dropped", n, w.m.Counts())
	}
}

// The end of a run whose effect happened elsewhere is repeated as long as it takes. It is not run again meanwhile.
func TestFM46_RecordThatIsRefusedKeepsItsLease(t *testing.T) {
	for name, refusal := range map[string]error{"refused": errRefused, "no response": errSilent} {
		t.Run(name, func(t *testing.T) {
			w := newResponder(t, nil)
			w.plain = true
			refused := true
			w.end = func([]driver.Work, int) error {
				if refused {
					return refusal
				}
				return nil
			}
			w.send(1, "a", bad, "b")
			w.live(5 * lease)
			if w.healthy() != 2 || w.m.InFlight() != 1 || w.m.Counts().Fenced > 0 {
				t.Fatalf("%v, %d in flight, %+v", w.done, w.m.InFlight(), w.m.Counts())
			}
			refused = false
			w.live(5 * time.Second)
			if w.done[bad+" complete"] != 1 {
				t.Fatalf("%v", w.done)
			}
		})
	}
}

// The same in open transactions.
func TestFM45_OneRefusedTransactionIsItsMessagesFailure(t *testing.T) {
	for name, mode := range map[string]func(*machine.Config){"one by one": openMode, "batch": batchMode} {
		for kind, refusal := range map[string]error{
			"unnamed": errRefused, "transient": &driver.ItemError{Err: errors.New("XX000"), Transient: true},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newResponder(t, mode)
				w.commit = func([]*machine.Item, int) error { return refusal }
				w.send(1, "a", bad, "b", "c", "d")
				w.live(20 * time.Second)
				for n := 2; len(w.deadLetters) == 0 && n < 6; n++ {
					w.send(n, bad)
					w.live(20 * time.Second)
				}
				if w.healthy() != 4 {
					t.Errorf("%v: the others were kept waiting", w.done)
				}
				if w.done[bad+" release"] != 2 || len(w.deadLetters) != 1 {
					t.Errorf("the refused one: %v, dead letters %v", w.done, w.deadLetters)
				}
			})
		}
	}
}

// The same without an extension of the visibility: a delivery that expired early, after some refusals, does not slow the next
// ones down so much that each expires before it has failed.
func TestFM45_RefusedTransactionFailsWithinAShortVisibility(t *testing.T) {
	w := newResponder(t, func(c *machine.Config) { openMode(c); c.Extends = false })
	w.commit = func([]*machine.Item, int) error { return errRefused }
	for n := 1; len(w.deadLetters) == 0 && n < 20; n++ {
		a := message(fmt.Sprint("m", n), bad)
		if a.Count, a.Visible = n, 2*time.Second; n == 1 {
			a.Visible = 400 * time.Millisecond
		}
		w.receive(a)
		w.live(a.Visible + 3*time.Second)
	}
	if w.done[bad+" release"] != 2 || len(w.deadLetters) != 1 {
		t.Errorf("%v, dead letters %v", w.done, w.deadLetters)
	}
}

// A record that cannot be read is its key's error. Its message is redelivered with growing delays, then dead-lettered with a
// hint. Nothing is written to the record, and nothing else waits.
func TestFM82_UnreadableRecordStopsNoOther(t *testing.T) {
	for name, grant := range map[string]func(claims []driver.Claim, g *driver.Grant) error{
		"of its item": func(_ []driver.Claim, g *driver.Grant) error {
			*g = driver.Grant{Err: fmt.Errorf("watermark of form 3: %w", driver.ErrUnreadable)}
			return nil
		},
		"of the call": func([]driver.Claim, *driver.Grant) error {
			return fmt.Errorf("watermark of form 3: %w", driver.ErrUnreadable)
		},
	} {
		for mode, change := range map[string]func(*machine.Config){"claims": nil, "open": openMode} {
			if mode == "open" && name == "of the call" {
				continue // adapters return it for its item
			}
			t.Run(name+" "+mode, func(t *testing.T) {
				w := newResponder(t, change)
				w.claim = func(c []driver.Claim, _ int, g *driver.Grant) error { return grant(c, g) }
				w.send(1, bad, "a", "b", "c", "d", "e")
				w.live(5 * time.Second)
				if w.healthy() != 5 {
					t.Fatalf("%v: the others wait", w.done)
				}
				for n := 2; n <= 3; n++ {
					w.send(n, bad, fmt.Sprint("more", n))
					w.live(20 * time.Second)
				}
				if w.healthy() != 7 || w.m.InFlight() > 0 || len(w.deadLetters) != 1 {
					t.Fatalf("%v, %d in flight, dead letters %v", w.done, w.m.InFlight(), w.deadLetters)
				}
				if r := w.deadLetters[0].Reason; !strings.Contains(r, `key "bad"`) || !strings.Contains(r, "upgrade this worker") {
					t.Errorf("the dead letter says %q", r)
				}
				for k := range w.done {
					if strings.HasPrefix(k, bad) {
						t.Errorf("%s was written", k)
					}
				}
			})
		}
	}
}

// A key whose claim or ack gets no response waits by itself. Its lane does not.
func TestFM46_KeyWithoutResponseWaitsAlone(t *testing.T) {
	w := newResponder(t, nil)
	claims := 0
	w.claim = func(_ []driver.Claim, _ int, g *driver.Grant) error {
		claims++
		*g = driver.Grant{Err: errors.New("throttled")}
		return nil
	}
	w.send(1, bad)
	began := w.now
	for n := range 50 {
		w.serve()
		w.send(1, fmt.Sprint("k", n), fmt.Sprint("l", n))
		w.serve()
	}
	if w.healthy() != 100 || w.now != began {
		t.Fatalf("%d healthy messages are done after %v", w.healthy(), w.now-began)
	}
	w.live(5 * time.Second)
	if claims < 5 || claims > 12 {
		t.Errorf("the key was asked for %d times in 5 s", claims)
	}
}

func TestFM46_AckWithoutResponseWaitsAlone(t *testing.T) {
	w := newResponder(t, nil)
	acks := 0
	w.settle = func(key string) driver.Outcome {
		if key != bad {
			return driver.Applied
		}
		acks++
		return driver.Unknown
	}
	w.send(1, bad)
	began := w.now
	for n := range 50 {
		w.serve()
		w.send(1, fmt.Sprint("k", n))
		w.serve()
	}
	if got := w.m.InFlight(); got != 1 || w.now != began {
		t.Fatalf("%d in flight after %v: others wait for the ack of one", got, w.now-began)
	}
	w.live(10 * time.Second)
	if got := w.m.Counts(); acks != 7 || w.m.InFlight() != 0 || got.SettleFails != 1 {
		t.Errorf("%d acks, %d in flight, %+v", acks, w.m.InFlight(), got)
	}
}

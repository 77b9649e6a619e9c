package lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Held is a lock that is held. All methods may be called concurrently.
type Held struct {
	l    *Locker
	hold driver.Hold
	ctx  context.Context
	end  context.CancelCauseFunc
	done chan struct{} // the heartbeat has stopped
	// expiry ends the context at the deadline, whatever the heartbeat is waiting for then.
	expiry *time.Timer

	mu       sync.Mutex
	deadline time.Time
	unlocked bool
}

// hold begins the heartbeat. sent is when the answered claim was sent: the lease counts from before that.
func (l *Locker) hold(h driver.Hold, sent time.Time) *Held {
	ctx, end := context.WithCancelCause(context.Background())
	held := &Held{l: l, hold: h, ctx: ctx, end: end, done: make(chan struct{}), deadline: sent.Add(l.o.Lease)}
	held.mu.Lock() // expire waits for the timer to be there
	defer held.mu.Unlock()
	held.expiry = time.AfterFunc(time.Until(held.deadline), held.expire)
	go held.beat()
	return held
}

// expire ends the context when the lease has passed by our own clock.
func (h *Held) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := time.Until(h.deadline); left > 0 {
		h.expiry.Reset(left)
	} else {
		h.end(ErrLost)
	}
}

// Name is the lock's name.
func (h *Held) Name() string { return h.hold.Key.Raw }

// Token is the fencing token: greater than that of every earlier holder of this lock, for resources to compare.
func (h *Held) Token() uint64 { return h.hold.Token }

// Context ends when the lock is lost (cause ErrLost) or unlocked (cause context.Canceled).
func (h *Held) Context() context.Context { return h.ctx }

// Deadline is until when the lock is ours by our own clock, if it is not extended again.
func (h *Held) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// beat extends the lease every third of it, until the context ends.
func (h *Held) beat() {
	defer close(h.done)
	defer h.expiry.Stop()
	third := h.l.o.Lease / 3
	for pause := third; sleep(h.ctx, pause); {
		pause = third
		if err := h.Extend(h.ctx); err != nil {
			if errors.Is(err, ErrLost) {
				return
			}
			pause = min(third/4, 250*time.Millisecond) // unanswered: the same again while the lease lasts
		}
	}
}

// Extend renews the lease now; the heartbeat does so anyway. ErrLost: somebody else has the lock, or it was unlocked;
// the context has ended. Any other error: it is not known, and can be asked again.
func (h *Held) Extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.l.patience())
	defer cancel()
	sent := time.Now()
	out, err := h.l.store.Extend(ctx, h.l.o.Lease, h.hold)
	switch {
	case err != nil:
		return fmt.Errorf("extend lock %q: %w", h.Name(), err)
	case len(out) == 1 && out[0] == driver.Applied:
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ctx.Err() != nil { // too late: who uses the lock was told that it is lost
			return fmt.Errorf("extend lock %q: %w", h.Name(), ErrLost)
		}
		h.deadline = sent.Add(h.l.o.Lease)
		return nil
	case len(out) == 1 && out[0] == driver.Lost:
		h.end(ErrLost)
		return fmt.Errorf("extend lock %q: %w", h.Name(), ErrLost)
	}
	return fmt.Errorf("extend lock %q: the store did not answer", h.Name())
}

// patience bounds one write: a store that does not answer must not hold up what has to be done in time.
func (l *Locker) patience() time.Duration { return max(l.o.Lease/3, 50*time.Millisecond) }

// Unlock gives the lock back. It stops the heartbeat first, and retries an unanswered write until the lease or ctx has
// ended; after an error the lock becomes free when its lease ends. Unlocking a lock that somebody else took over
// meanwhile changes nothing and is no error, nor is unlocking twice.
func (h *Held) Unlock(ctx context.Context) error {
	h.end(context.Canceled)
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unlocked {
		return nil
	}
	f := driver.Finish{Hold: h.hold, Final: driver.Release, Ran: driver.NotApplied, Refund: true, Keep: h.l.o.Keep, Reason: "unlocked"}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		once, cancel := context.WithTimeout(ctx, h.l.patience())
		out, err := h.l.store.Finish(once, f)
		cancel()
		if err == nil && len(out) == 1 && out[0] != driver.Unknown {
			h.unlocked = true // Applied, or Lost: it is not ours in either case
			return nil
		}
		if time.Until(h.deadline) <= 0 || !sleep(ctx, pause) {
			return fmt.Errorf("unlock %q: not known whether it is free before its lease ends: %w", h.Name(),
				errors.Join(err, context.Cause(ctx)))
		}
	}
}

// HeaderName is the header that carries a fencing token.
const HeaderName = "Fencing-Token"

// Header puts the token on a request, for a server that compares it ([CheckHeader]).
func (h *Held) Header(header http.Header) {
	header.Set(HeaderName, strconv.FormatUint(h.Token(), 10))
}

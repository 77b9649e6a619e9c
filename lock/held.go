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
	"github.com/semel-dev/semel/internal/idle"
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
	// active is when the holder got the lock, or last called Extend.
	active   time.Time
	unlocked bool
}

// hold begins the heartbeat. sent is when the claim was sent: the lease counts from before that.
func (l *Locker) hold(h driver.Hold, sent time.Time) *Held {
	ctx, end := context.WithCancelCause(context.Background())
	held := &Held{l: l, hold: h, ctx: ctx, end: end, done: make(chan struct{}), deadline: l.deadline(sent), active: time.Now()}
	held.mu.Lock() // expire waits until the timer is set
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
		if h.ctx.Err() == nil {
			h.expiry.Reset(left)
		}
	} else {
		h.end(ErrLost)
	}
}

// Name returns the lock's name.
func (h *Held) Name() string { return h.hold.Key.Raw }

// Token returns the fencing token: greater than that of every earlier holder of this lock, for resources to compare. It fits
// into a signed column of 64 bits. Options.Epoch is in its highest bits.
func (h *Held) Token() uint64 { return uint64(h.l.o.Epoch)<<epochShift | h.hold.Token }

// Context ends when the lock is lost (cause ErrLost) or unlocked (cause context.Canceled).
func (h *Held) Context() context.Context { return h.ctx }

// lost reports that the lock was lost before it was unlocked. The timer that ends the context may be late.
func (h *Held) lost() bool {
	h.expire()
	return errors.Is(context.Cause(h.ctx), ErrLost)
}

// Deadline returns until when the lock is ours by our own monotonic clock, if it is not extended again: a little before the
// store would give it to another holder.
func (h *Held) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// beat extends the lease every third of it, until the context ends or the holder was inactive for Options.MaxHold.
func (h *Held) beat() {
	defer close(h.done)
	defer h.expiry.Stop()
	third := h.l.o.Lease / 3
	for pause := third; idle.For(h.ctx, pause); {
		pause = third
		if h.inactive() {
			// A holder that hangs must not keep the lock forever (FM8): its lease expires. Until then it may call Extend.
			continue
		}
		if err := h.extend(h.ctx); err != nil {
			if errors.Is(err, ErrLost) {
				return
			}
			pause = min(third/4, 250*time.Millisecond) // no response: the same again while the lease lasts
		}
	}
}

// inactive reports that the holder did not call Extend for longer than MaxHold.
func (h *Held) inactive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.l.o.MaxHold > 0 && time.Since(h.active) > h.l.o.MaxHold
}

// Extend renews the lease now, and shows that the holder is alive (Options.MaxHold). Without a MaxHold you need not call it:
// the heartbeat renews the lease anyway. It blocks for a third of the lease at most, and does not retry. ErrLost: another
// holder has the lock, or it was unlocked; the context has ended. Any other error: the outcome is unknown, and you may call
// it again.
func (h *Held) Extend(ctx context.Context) error {
	h.mu.Lock()
	h.active = time.Now()
	h.mu.Unlock()
	return h.extend(ctx)
}

func (h *Held) extend(ctx context.Context) error {
	if h.ctx.Err() != nil { // the store may not know it yet, and would keep the lock without a holder
		return fmt.Errorf("extend lock %q: %w", h.Name(), ErrLost)
	}
	ctx, cancel := context.WithTimeout(ctx, h.l.writeTimeout())
	defer cancel()
	sent := time.Now()
	out, err := h.l.store.Extend(ctx, h.l.o.Lease, h.hold)
	switch {
	case err != nil:
		return fmt.Errorf("extend lock %q: %w", h.Name(), err)
	case len(out) == 1 && out[0] == driver.Applied:
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ctx.Err() != nil { // too late: the holder's context has ended already
			return fmt.Errorf("extend lock %q: %w", h.Name(), ErrLost)
		}
		// Of two concurrent extensions the one that was sent first may return last.
		if d := h.l.deadline(sent); d.After(h.deadline) {
			h.deadline = d
		}
		return nil
	case len(out) == 1 && out[0] != driver.Unknown:
		h.end(ErrLost)
		return fmt.Errorf("extend lock %q: %w", h.Name(), ErrLost)
	}
	return fmt.Errorf("extend lock %q: the store did not respond", h.Name())
}

// deadline is until when the holder relies on a lease that was asked for at the time sent: a tenth less than it lasts,
// and a second at most, so that what it began in time has also ended (protocol section 1, law 7).
func (l *Locker) deadline(sent time.Time) time.Time {
	return sent.Add(l.o.Lease - min(l.o.Lease/10, time.Second))
}

// writeTimeout bounds one write: a store that does not respond must not delay what has to be done in time.
func (l *Locker) writeTimeout() time.Duration { return max(l.o.Lease/3, 50*time.Millisecond) }

// Unlock releases the lock. It stops the heartbeat first, and retries a write without a response until the lease or ctx has
// ended. The first try is made even if ctx has ended already, because a caller that gives up must still clean up. After an
// error the lock becomes free when its lease ends, and Unlock may be called again. Unlocking a lock that another holder took
// over meanwhile changes nothing and is no error, nor is unlocking twice.
func (h *Held) Unlock(ctx context.Context) error {
	h.end(context.Canceled)
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unlocked {
		return nil
	}
	f := driver.Finish{
		Hold: h.hold, Final: driver.Release, Ran: driver.NotApplied, Refund: true, Keep: h.l.o.Keep, Reason: "unlocked",
	}
	first := context.WithoutCancel(ctx)
	for try, pause := first, 5*time.Millisecond; ; try, pause = ctx, min(2*pause, time.Second) {
		once, cancel := context.WithTimeout(try, h.l.writeTimeout())
		out, err := h.l.store.Finish(once, f)
		cancel()
		if err == nil && len(out) == 1 && out[0] != driver.Unknown {
			h.unlocked = true // Applied, or Lost: it is not ours in either case
			return nil
		}
		if time.Until(h.deadline) <= 0 || !idle.For(ctx, pause) {
			return fmt.Errorf("unlock %q: it is unknown whether it is free before its lease ends: %w", h.Name(),
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

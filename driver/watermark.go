package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file is mode D (protocol section 6): keys whose messages have versions and replace each other. The claims of a key
// without versions are in table.go.

// Watermark is the progress of a versioned key.
type Watermark struct {
	// Running is the version of the latest run, whatever its outcome. Applied is the greatest version that was completed, or
	// "", and Fingerprint is that of its payload.
	Running, Applied Version
	Fingerprint      Fingerprint
	// Gap: the latest run passed over versions that it should have waited for.
	Gap bool
	// Doubt is the greatest version that may have been applied and was replaced by a newer one before its outcome was known.
	// Dropped is the latest version that a person discarded. Each is "" after a greater version was applied. No version older
	// than Doubt runs: an older effect must not follow a newer one (FM76).
	Doubt, Dropped Version
	// Skipped are the gaps that were passed over, the latest last, MaxSkipped at most. If there are more, the oldest are
	// joined. A version inside a gap is not stale: no applied version is known to contain it.
	Skipped []Span
}

// Span is the range between two versions, both excluded.
type Span struct{ After, Before Version }

// MaxSkipped is the maximum length of Watermark.Skipped.
const MaxSkipped = 16

// apply makes the running version the applied one.
func (w *Watermark) apply(fp Fingerprint) {
	if w.Running == "" {
		return
	}
	if w.Gap {
		w.Skipped = append(slices.Clone(w.Skipped), Span{After: w.Applied, Before: w.Running})
		if n := len(w.Skipped); n > MaxSkipped {
			w.Skipped[1].After = w.Skipped[0].After
			w.Skipped = w.Skipped[1:]
		}
	}
	w.Applied, w.Fingerprint, w.Gap = w.Running, fp, false
	if w.Doubt <= w.Applied {
		w.Doubt = ""
	}
	if w.Dropped <= w.Applied {
		w.Dropped = ""
	}
}

// PassedOver reports whether a version was passed over: a newer one did not wait for it. It is not stale, but it can no
// longer be applied in its place.
func (w *Watermark) PassedOver(v Version) bool {
	return slices.ContainsFunc(w.Skipped, func(s Span) bool { return s.After < v && v < s.Before })
}

// gap reports whether versions are missing between the applied one and the claimed one.
func (c *Claim) gap(applied Version) bool { return c.After != "" && applied < c.After }

func (c *Claim) waitsForGap(applied Version) bool { return !c.NoWait && c.gap(applied) }

// claimVersion decides the claim of another version than the one that ran last.
func (r Record) claimVersion(c Claim, now time.Time, drawn uint64) (Record, Grant, bool) {
	w := &r.Watermark
	v := c.Version
	if !v.Comparable(w.Running) {
		// The consumer had another configuration when the record was made: the two versions cannot be ordered.
		return r, r.grant(Mismatch, c.DeliveryID), false
	}
	switch {
	case v <= w.Applied:
		return r.passed(c)
	case v > w.Running && v != w.Dropped && c.waitsForGap(w.Applied):
		return r.waitForGap(c, now) // whatever runs now, the version before it must be applied first
	}
	if after, g, changed, decided := r.blocked(c, now); decided {
		return after, g, changed
	}
	switch {
	case v == w.Dropped:
		g := r.grant(Failed, c.DeliveryID)
		g.Reason, g.Disposed = "discarded by a person", true
		return r, g, false
	case v < w.Doubt || v < w.Running && (r.State == FailedState || r.State == Uncertain) && r.Unknown:
		return r.late(c, "a newer version may have been applied: its outcome is unknown")
	case c.waitsForGap(w.Applied):
		return r.waitForGap(c, now)
	}
	seen := c.DeliveryID != "" && r.saw(c.DeliveryID)
	r.replace(c)
	r.acquire(c, now, drawn)
	g := r.grant(Acquired, "")
	g.Redelivery = seen
	return r, g, true
}

func (r Record) waitForGap(c Claim, now time.Time) (Record, Grant, bool) {
	g := r.grant(Busy, c.DeliveryID)
	g.Gap, g.Wait = true, max(now.Sub(r.UpdatedAt), 0)
	return r, g, false
}

// passed decides the claim of a version that is not newer than the applied one.
func (r Record) passed(c Claim) (Record, Grant, bool) {
	w := &r.Watermark
	switch {
	case c.Version == w.Applied && w.Fingerprint.Differs(c.Fingerprint):
		return r, r.grant(Mismatch, c.DeliveryID), false
	case c.Version == w.Applied:
		return r, r.grant(Replay, c.DeliveryID), false
	case w.PassedOver(c.Version):
		return r.late(c, "its place in the sequence was passed over")
	}
	g := r.grant(Stale, c.DeliveryID)
	g.Reason = fmt.Sprintf("version %s already processed (current: %s)", c.Version, w.Applied)
	return r, g, false
}

// waitForNewer is how many leases an older version waits for a newer one that no worker runs.
const waitForNewer = 100

// blocked decides whether the run of another version must settle first.
func (r Record) blocked(c Claim, now time.Time) (after Record, g Grant, changed, decided bool) {
	older := c.Version < r.Watermark.Running
	// A newer version that ran settles when its message is redelivered. That message may be behind this one, or even gone. A
	// newer version that failed without doubt must settle too: two versions that fail in turns would not use up their attempts.
	retried := older && r.State == Released && (r.Unknown || r.Failures > 0)
	silent, since := older && r.State == InProgress && now.After(r.LeaseUntil), r.LeaseUntil
	if retried {
		since = r.RetryAt
	}
	if (retried || silent) && (c.NoWait || now.After(since.Add(waitForNewer*r.Lease))) {
		after, g, _ = r.late(c, "a newer version has run and has not come to an end")
		return after, g, false, true
	}
	switch r.State {
	case InProgress:
		left := r.LeaseUntil.Sub(now)
		switch {
		case left > r.Lease: // the store's clock stepped back (law 7)
			r.LeaseUntil = now.Add(r.Lease)
			left, changed = r.Lease, true
		case left >= 0:
		case older:
			left = r.Lease // the outcome of the newer version is unknown: the older must not follow it (FM76)
		default:
			return r, g, false, false
		}
		after, g, _ = r.busy(c, left)
		return after, g, changed, true
	case Released:
		if retried {
			after, g, _ = r.busy(c, max(r.RetryAt.Sub(now), r.Lease))
			return after, g, false, true
		}
	}
	return r, g, false, false
}

// replace makes the claimed version the running one. The watermark remembers the doubt or the discard of the previous one for
// as long as an older version could come.
func (r *Record) replace(c Claim) {
	w := &r.Watermark
	if r.State == InProgress || r.Unknown {
		if r.State == InProgress {
			r.Uncertainty++ // its lease expired
		}
		w.Doubt = max(w.Doubt, w.Running)
	}
	if r.Disposed {
		w.Dropped = w.Running
	}
	w.Running, w.Gap = c.Version, c.gap(w.Applied)
	r.Fingerprint = c.Fingerprint
	r.Attempt, r.Failures, r.Takeovers, r.Disposed = 0, 0, 0, false
	r.Unknown = c.Version == w.Doubt // the version in doubt runs again
}

func (r Record) late(c Claim, why string) (Record, Grant, bool) {
	g := r.grant(Late, c.DeliveryID)
	g.Reason = fmt.Sprintf("version %s comes too late: %s (current: %s)", c.Version, why, r.Watermark.current())
	return r, g, false
}

func (w *Watermark) current() string {
	if w.Applied == "" {
		return "none"
	}
	return w.Applied.String()
}

// watermarkForm is the first byte of a stored watermark.
const watermarkForm byte = 1

// AppendWatermark appends the stored form of a watermark to b: nothing for the zero one.
func AppendWatermark(b []byte, w *Watermark) []byte {
	if w.Running == "" {
		return b
	}
	flags := byte(0)
	if w.Gap {
		flags = 1
	}
	b = append(b, watermarkForm, flags)
	put := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	put(string(w.Running))
	put(string(w.Applied))
	put(string(w.Fingerprint))
	put(string(w.Doubt))
	put(string(w.Dropped))
	for _, s := range w.Skipped {
		put(string(s.After))
		put(string(s.Before))
	}
	return b
}

// ParseWatermark reads what AppendWatermark wrote.
func ParseWatermark(b []byte) (w Watermark, err error) {
	if len(b) == 0 {
		return w, nil
	}
	if len(b) < 2 || b[0] != watermarkForm {
		return w, errors.New("watermark of a record is of an unknown form: a newer version of semel wrote it")
	}
	w.Gap = b[1]&1 != 0
	b = b[2:]
	next := func() string {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			err = errors.New("watermark of a record is cut short")
			return ""
		}
		s := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return s
	}
	w.Running, w.Applied, w.Fingerprint = Version(next()), Version(next()), Fingerprint(next())
	w.Doubt, w.Dropped = Version(next()), Version(next())
	for err == nil && len(b) > 0 {
		w.Skipped = append(w.Skipped, Span{After: Version(next()), Before: Version(next())})
	}
	return w, err
}

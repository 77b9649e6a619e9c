package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
)

// A record is one string: 124 bytes whose offsets the scripts know, then sections of variable length, then the tail, which
// a completion replaces. Numbers are big-endian, times microseconds since 1970 (0 = none).
const (
	form = 1 // the first byte

	offState      = 1
	offFlags      = 2
	offTakeover   = 3 // the policy, and in the upper half how an EXPIRED record ended
	offGeneration = 4
	offToken      = 8
	offNonce      = 16
	offEpoch      = 32
	offUpdated    = 36
	offLease      = 44
	offUntil      = 52
	offBeat       = 60
	offAttempt    = 64
	offFailures   = 68
	offTakeovers  = 72
	offDoubts     = 76
	offCreated    = 80
	offRetry      = 88
	offCompleted  = 96
	offRetain     = 104
	offDigest     = 112
	offTail       = 120
	offSections   = 124

	// headSize is how much of a record a swap compares. Every change of a record changes it.
	headSize = offTail
)

// Flags of a record. One with a watermark is left alone by the scripts for plain cases.
const (
	flagSpent = 1 << iota
	flagUnknown
	flagDisposed
	flagWatermark
)

// Scores of the index have three ranges: UNCERTAIN, IN_PROGRESS (see prelude.lua), and what has a retention.
const (
	openScore      = -4e15
	uncertainScore = -8e15
)

// score is a record's place in the index.
func score(r *driver.Record) string {
	at := float64(micro(r.RetainUntil))
	switch r.State {
	case driver.InProgress:
		at = min(float64(micro(r.LeaseUntil))+openScore, -1)
	case driver.Uncertain:
		at = float64(micro(r.UpdatedAt)) + uncertainScore
	case driver.Absent, driver.Released, driver.Completed, driver.FailedState, driver.Expired:
	}
	return strconv.FormatFloat(at, 'f', 0, 64)
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(n uint64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(n)) //nolint:gosec // as it was written
}

// holdBytes are generation, token and nonce as a record has them: one compare.
func holdBytes(h *driver.Hold) []byte {
	b := make([]byte, 0, offEpoch-offGeneration)
	b = binary.BigEndian.AppendUint32(b, h.Generation)
	b = binary.BigEndian.AppendUint64(b, h.Token)
	return append(b, h.Nonce[:]...)
}

// encode makes the bytes of a record.
func encode(r *driver.Record) []byte {
	b := make([]byte, offSections, offSections+64+len(r.Key.Consumer)+len(r.Key.Tenant)+len(r.Key.Raw)+len(r.Result))
	n32 := func(at, n int) { binary.BigEndian.PutUint32(b[at:], uint32(n)) }       //nolint:gosec // counts
	n64 := func(at int, n int64) { binary.BigEndian.PutUint64(b[at:], uint64(n)) } //nolint:gosec // times are after 1970
	mark := driver.AppendWatermark(nil, &r.Watermark)
	b[0], b[offState], b[offTakeover] = form, byte(r.State), byte(r.Takeover)|byte(r.Ended)<<4
	flag := func(f byte, set bool) {
		if set {
			b[offFlags] |= f
		}
	}
	flag(flagSpent, r.Spent)
	flag(flagUnknown, r.Unknown)
	flag(flagDisposed, r.Disposed)
	flag(flagWatermark, len(mark) > 0)
	n32(offGeneration, int(r.Generation))
	binary.BigEndian.PutUint64(b[offToken:], r.Token)
	copy(b[offNonce:], r.Nonce[:])
	n32(offEpoch, int(r.Epoch))
	n64(offUpdated, micro(r.UpdatedAt))
	n64(offLease, r.Lease.Microseconds())
	n64(offUntil, micro(r.LeaseUntil))
	n32(offBeat, int(r.Beat))
	n32(offAttempt, r.Attempt)
	n32(offFailures, r.Failures)
	n32(offTakeovers, r.Takeovers)
	n32(offDoubts, r.Uncertainty)
	n64(offCreated, micro(r.CreatedAt))
	n64(offRetry, micro(r.RetryAt))
	n64(offCompleted, micro(r.CompletedAt))
	n64(offRetain, micro(r.RetainUntil))
	binary.BigEndian.PutUint64(b[offDigest:], uint64(r.BodyDigest))
	for _, s := range []string{r.Key.Consumer, r.Key.Tenant, r.Key.Raw, string(r.Fingerprint), string(mark)} {
		b = section(b, s)
	}
	for _, s := range r.Deliveries {
		b = section(b, s)
	}
	binary.BigEndian.PutUint32(b[offTail:], uint32(len(b))) //nolint:gosec // a record is smaller than 512 MB
	return append(b, tail(r.Reason, r.Result)...)
}

func section(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// tail is the end of a record.
func tail(reason string, result []byte) []byte {
	b := section(make([]byte, 0, 8+len(reason)+len(result)), reason)
	return append(b, result...)
}

// decode reads the bytes of a record. Its errors are driver.ErrUnreadable.
func decode(b []byte) (r driver.Record, err error) {
	if err := check(b); err != nil {
		return r, fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	n32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	n64 := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	at := func(off int) time.Time { return fromMicro(n64(off)) }
	flag := func(f byte) bool { return b[offFlags]&f != 0 }
	r = driver.Record{
		State: driver.State(b[offState]), Takeover: driver.Takeover(b[offTakeover] & 15), Ended: driver.State(b[offTakeover] >> 4), Generation: n32(offGeneration),
		Token: n64(offToken), Nonce: driver.Nonce(b[offNonce:offEpoch]), Epoch: n32(offEpoch),
		Spent: flag(flagSpent), Unknown: flag(flagUnknown), Disposed: flag(flagDisposed),
		Lease:      time.Duration(n64(offLease)) * time.Microsecond, //nolint:gosec // as it was written
		LeaseUntil: at(offUntil), UpdatedAt: at(offUpdated), CreatedAt: at(offCreated), RetryAt: at(offRetry),
		CompletedAt: at(offCompleted), RetainUntil: at(offRetain), Beat: n32(offBeat), Attempt: int(n32(offAttempt)),
		Failures: int(n32(offFailures)), Takeovers: int(n32(offTakeovers)), Uncertainty: int(n32(offDoubts)),
		BodyDigest: driver.BodyDigest(n64(offDigest)),
	}
	rest, end := sections{b: b[offSections:n32(offTail)]}, sections{b: b[n32(offTail):]}
	r.Key = driver.Key{Consumer: rest.next(), Tenant: rest.next(), Raw: rest.next()}
	r.Fingerprint = driver.Fingerprint(rest.next())
	r.Watermark, err = driver.ParseWatermark([]byte(rest.next()))
	for len(rest.b) > 0 {
		r.Deliveries = append(r.Deliveries, rest.next())
	}
	if r.Reason = end.next(); len(end.b) > 0 {
		r.Result = end.b
	}
	if err == nil && (rest.cut || end.cut) {
		err = errors.New("it is cut short")
	}
	if err != nil {
		return r, fmt.Errorf("%w: record of key %q: %w", driver.ErrUnreadable, r.Key.Raw, err)
	}
	return r, nil
}

// check looks at what decode relies on.
func check(b []byte) error {
	switch {
	case len(b) < offSections:
		return fmt.Errorf("it has %d bytes, and is none of semel's", len(b))
	case b[0] != form || b[offFlags] >= 2*flagWatermark:
		return fmt.Errorf("it is of the unknown form %d: a newer version of semel wrote it", b[0])
	case b[offState] == 0 || driver.State(b[offState]) > driver.Expired || driver.Takeover(b[offTakeover]&15) > driver.Once:
		return fmt.Errorf("its state is %d and its policy %d: a newer version of semel wrote it", b[offState], b[offTakeover])
	}
	if t := int(binary.BigEndian.Uint32(b[offTail:])); t < offSections || t > len(b) {
		return errors.New("it is cut short")
	}
	return nil
}

// sections reads what section wrote.
type sections struct {
	b   []byte
	cut bool
}

func (s *sections) next() string {
	n, size := binary.Uvarint(s.b)
	if size <= 0 || n > uint64(len(s.b)-size) {
		s.b, s.cut = nil, true
		return ""
	}
	text := string(s.b[size : size+int(n)]) //nolint:gosec // it is in the slice
	s.b = s.b[size+int(n):]
	return text
}

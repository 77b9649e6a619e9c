package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// A record is one string: 124 fixed bytes, then sections of variable length, then the tail, which a completion replaces.
// Numbers are big-endian, times microseconds since 1970 (0 = none). The script knows the offsets of the fixed bytes.
const (
	form      = 1   // the first byte
	fixedSize = 124 // the last four of them are where the tail begins
	// headSize is how much of a record a swap compares. Every change of a record changes it.
	headSize = fixedSize - 4
)

// fixed reads or writes the fixed bytes of a record. A record with a watermark is left alone by the script for plain cases.
// tail is where the tail begins.
func (f *fields) fixed(r *driver.Record, watermark *bool, tail *uint32) {
	first, policy := uint8(form), uint8(r.Takeover)|uint8(r.Ended)<<4
	number(f, 1, &first)
	number(f, 1, &r.State)
	f.flags(&r.Spent, &r.Unknown, &r.Disposed, watermark)
	number(f, 1, &policy)
	number(f, 4, &r.Generation)
	number(f, 8, &r.Token)
	f.bytes(r.Nonce[:])
	number(f, 4, &r.Epoch)
	f.time(&r.UpdatedAt)
	f.duration(&r.Lease)
	f.time(&r.LeaseUntil)
	number(f, 4, &r.Beat)
	number(f, 4, &r.Attempt)
	number(f, 4, &r.Failures)
	number(f, 4, &r.Takeovers)
	number(f, 4, &r.Uncertainty)
	f.time(&r.CreatedAt)
	f.time(&r.RetryAt)
	f.time(&r.CompletedAt)
	f.time(&r.RetainUntil)
	number(f, 8, &r.BodyDigest)
	number(f, 4, tail)
	r.Takeover, r.Ended = driver.Takeover(policy&15), driver.State(policy>>4)
	f.unknown = f.unknown || first != form || r.State == driver.Absent || r.State > driver.Expired || r.Takeover > driver.Once
}

// fields walks over bytes of fixed size, and reads or writes them.
type fields struct {
	b       []byte
	writes  bool
	unknown bool // it read what it does not know
}

func (f *fields) next(n int) (b []byte) {
	b, f.b = f.b[:n], f.b[n:]
	return b
}

func number[T ~uint8 | ~uint32 | ~uint64 | ~int | ~int64](f *fields, size int, n *T) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(*n))
	f.bytes(b[8-size:])
	*n = T(binary.BigEndian.Uint64(b[:]))
}

func (f *fields) bytes(b []byte) {
	if at := f.next(len(b)); f.writes {
		copy(at, b)
	} else {
		copy(b, at)
	}
}

func (f *fields) time(t *time.Time) {
	n := micro(*t)
	number(f, 8, &n)
	if *t = time.UnixMicro(n); n == 0 {
		*t = time.Time{}
	}
}

func (f *fields) duration(d *time.Duration) {
	n := d.Microseconds()
	number(f, 8, &n)
	*d = time.Duration(n) * time.Microsecond
}

func (f *fields) flags(all ...*bool) {
	bits := uint8(0)
	for i, flag := range all {
		if *flag {
			bits |= 1 << i
		}
	}
	number(f, 1, &bits)
	for i, flag := range all {
		*flag = bits&(1<<i) != 0
	}
	f.unknown = f.unknown || bits>>len(all) != 0
}

// Scores of the index have three ranges: IN_PROGRESS (see records.lua), what has a retention, and UNCERTAIN, which is never due.
const (
	openScore      = -4e15
	uncertainScore = 8e15
)

// score is a record's place in the index.
func score(r *driver.Record) string {
	at := float64(micro(r.RetainUntil))
	switch r.State {
	case driver.InProgress:
		at = min(float64(micro(r.LeaseUntil))+openScore, -1)
	case driver.Uncertain:
		at = uncertainScore
	case driver.Absent, driver.Released, driver.Completed, driver.FailedState, driver.Expired:
	}
	return scoreText(at)
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// holdBytes are generation, token and nonce as a record has them: one compare.
func holdBytes(h *driver.Hold) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 28), h.Generation)
	b = binary.BigEndian.AppendUint64(b, h.Token)
	return append(b, h.Nonce[:]...)
}

// encode makes the bytes of a record.
func encode(r driver.Record) []byte {
	b := make([]byte, fixedSize, fixedSize+64+len(r.Key.Consumer)+len(r.Key.Tenant)+len(r.Key.Raw)+len(r.Result))
	mark := driver.AppendWatermark(nil, &r.Watermark)
	for _, s := range []string{r.Key.Consumer, r.Key.Tenant, r.Key.Raw, string(r.Fingerprint), string(mark)} {
		b = section(b, s)
	}
	for _, s := range r.Deliveries {
		b = section(b, s)
	}
	watermark, end := len(mark) > 0, uint32(len(b)) //nolint:gosec // a record is smaller than 512 MB
	(&fields{b: b, writes: true}).fixed(&r, &watermark, &end)
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
	if len(b) < fixedSize {
		return r, fmt.Errorf("%w: it has %d bytes, and is none of semel's", driver.ErrUnreadable, len(b))
	}
	var watermark bool
	var end uint32
	f := fields{b: b}
	if f.fixed(&r, &watermark, &end); f.unknown {
		return r, fmt.Errorf("%w: a newer version of semel wrote it (form %d, state %d, flags and policy %x)", driver.ErrUnreadable, b[0], b[1], b[2:4])
	}
	if end < fixedSize || int(end) > len(b) {
		return r, fmt.Errorf("%w: it is cut short", driver.ErrUnreadable)
	}
	rest, last := sections{b: b[fixedSize:end]}, sections{b: b[end:]}
	r.Key = driver.Key{Consumer: rest.next(), Tenant: rest.next(), Raw: rest.next()}
	r.Fingerprint = driver.Fingerprint(rest.next())
	r.Watermark, err = driver.ParseWatermark([]byte(rest.next()))
	for len(rest.b) > 0 {
		r.Deliveries = append(r.Deliveries, rest.next())
	}
	if r.Reason = last.next(); len(last.b) > 0 {
		r.Result = last.b
	}
	if err == nil && (rest.cut || last.cut) {
		err = errors.New("it is cut short")
	}
	if err != nil {
		return r, fmt.Errorf("%w: record of key %q: %w", driver.ErrUnreadable, r.Key.Raw, err)
	}
	return r, nil
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

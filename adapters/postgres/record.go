package postgres

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// placeOf is the place of a key's record.
func placeOf(k *driver.Key) []byte { return []byte(rowstore.PlaceOf(k)) }

// restOf is what the record stores of a key beside its place and its consumer.
func restOf(place []byte, k *driver.Key) []byte { return rowstore.Place(place).Rest(k) }

// keyed is items of a call in the order of their places, which is the order in which every statement locks records.
type keyed struct {
	places bytess
	index  []int // of the item in the call
}

// sortKeys makes the order of n items.
func sortKeys(n int, key func(i int) *driver.Key) keyed {
	type entry struct {
		place []byte
		i     int
	}
	all := make([]entry, n)
	for i := range all {
		all[i] = entry{placeOf(key(i)), i}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(bytes.Compare(a.place, b.place), a.i-b.i)
	})
	k := keyed{places: make(bytess, n), index: make([]int, n)}
	for at, e := range all {
		k.places[at], k.index[at] = e.place, e.i
	}
	return k
}

func (k *keyed) add(key *driver.Key, i int) {
	k.places, k.index = append(k.places, placeOf(key)), append(k.index, i)
}

// find returns which item has a place, len when none has. near is where to look first, because results come in order.
func (k *keyed) find(place []byte, near int) int {
	if near < len(k.places) && bytes.Equal(k.places[near], place) {
		return near
	}
	at, ok := slices.BinarySearchFunc(k.places, place, bytes.Compare)
	if !ok {
		return len(k.places)
	}
	return at
}

// only returns some of the items.
func (k *keyed) only(which []int) keyed {
	part := keyed{places: make(bytess, len(which)), index: make([]int, len(which))}
	for i, at := range which {
		part.places[i], part.index[i] = k.places[at], k.index[at]
	}
	return part
}

// split parts items by yes.
func (k *keyed) split(yes func(i int) bool) (those, others keyed) {
	var a, b []int
	for at, i := range k.index {
		if yes(i) {
			a = append(a, at)
		} else {
			b = append(b, at)
		}
	}
	return k.only(a), k.only(b)
}

// and merges two parts.
func (k keyed) and(other keyed) keyed {
	if len(other.index) == 0 {
		return k
	}
	all := keyed{slices.Concat(k.places, other.places), slices.Concat(k.index, other.index)}
	order := make([]int, len(all.index))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(all.places[a], all.places[b]) })
	return all.only(order)
}

// layers parts items so that no part has a key twice. There is one part unless a caller names a key twice.
func (k keyed) layers() (parts []keyed) {
	for {
		var first, rest []int
		for at := range k.places {
			if at > 0 && bytes.Equal(k.places[at], k.places[at-1]) {
				rest = append(rest, at)
			}
		}
		if len(rest) == 0 {
			return append(parts, k)
		}
		for at := range k.places {
			if at == 0 || !bytes.Equal(k.places[at], k.places[at-1]) {
				first = append(first, at)
			}
		}
		parts = append(parts, k.only(first))
		k = k.only(rest)
	}
}

// chunks parts items so that the sum of their sizes does not exceed flushBytes, unless a single one does.
func (k keyed) chunks(size func(i int) int) (parts []keyed) {
	if len(k.index) == 0 {
		return nil
	}
	from, sum := 0, 0
	for at, i := range k.index {
		n := size(i)
		if at > from && sum+n > flushBytes {
			parts = append(parts, keyed{k.places[from:at], k.index[from:at]})
			from, sum = at, 0
		}
		sum += n
	}
	return append(parts, keyed{k.places[from:], k.index[from:]})
}

// errPacked reports a record that semel_row wrote in another way than readRecord reads it.
var errPacked = fmt.Errorf("%w: it has a form that this program does not know", driver.ErrUnreadable)

// recordFields is how many columns semel_row has.
const recordFields = 31

// epoch is PostgreSQL's zero time.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// packed reads the binary form of a row: a count, then type, length and bytes of each field
// (https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES, record_send).
type packed struct {
	b   []byte
	bad bool
}

func (p *packed) next() []byte {
	if len(p.b) < 8 {
		p.bad = true
		return nil
	}
	n := int32(binary.BigEndian.Uint32(p.b[4:]))
	p.b = p.b[8:]
	if n < 0 {
		return nil
	}
	if int(n) > len(p.b) {
		p.bad = true
		return nil
	}
	f := p.b[:n:n]
	p.b = p.b[n:]
	return f
}

// int returns 0 for NULL.
func (p *packed) int() int64 { return p.or(0) }

// or returns a number, that of the caller for NULL.
func (p *packed) or(null int64) int64 {
	f := p.next()
	if f == nil {
		return null
	}
	switch len(f) {
	case 8:
		return int64(binary.BigEndian.Uint64(f))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(f)))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(f)))
	default:
		p.bad = true
		return 0
	}
}

// flag returns false for NULL.
func (p *packed) flag() bool {
	f := p.next()
	p.bad = p.bad || len(f) > 1
	return len(f) == 1 && f[0] != 0
}

// time returns the zero time for NULL.
func (p *packed) time() time.Time {
	f := p.next()
	if f == nil {
		return time.Time{}
	}
	if len(f) != 8 {
		p.bad = true
		return time.Time{}
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(f)) + epoch)
}

// readRecord reads what semel_row wrote. The record shares no memory with b. Its errors are driver.ErrUnreadable.
func readRecord(b []byte) (r driver.Record, err error) {
	if len(b) < 4 || binary.BigEndian.Uint32(b) != recordFields {
		return r, errPacked
	}
	p := &packed{b: slices.Clone(b[4:])}
	place, rest, consumer := p.next(), p.next(), p.next()
	r.Token, r.State, r.Generation = uint64(p.int()), driver.State(p.int()), uint32(p.or(1))
	if nonce := p.next(); nonce != nil {
		p.bad = p.bad || copy(r.Nonce[:], nonce) != len(r.Nonce)
	}
	r.LeaseUntil = p.time()
	lease := p.or(-1)
	r.Beat, r.Takeover, r.Unknown = uint32(p.int()), driver.Takeover(p.int()), p.flag()
	r.UpdatedAt, r.CompletedAt, r.RetainUntil = p.time(), p.time(), p.time()
	r.Result, r.Reason = p.next(), string(p.next())
	r.Fingerprint, r.BodyDigest = driver.Fingerprint(p.next()), driver.BodyDigest(p.int())
	r.Epoch, r.Spent = uint32(p.int()), p.flag()
	r.Attempt, r.Failures, r.Takeovers = int(p.or(-1)), int(p.int()), int(p.int())
	r.Uncertainty, r.Disposed = int(p.int()), p.flag()
	r.RetryAt, r.CreatedAt = p.time(), p.time()
	deliveries := p.next()
	r.Ended = driver.State(p.int())
	watermark := p.next()
	if err = rowstore.Place(place).Unpack(&r, string(consumer), rest, deliveries, watermark); err == nil && p.bad {
		err = fmt.Errorf("record %q: %w", r.Key.Raw, errPacked)
	}
	if r.Lease = time.Duration(max(lease, 0)) * time.Microsecond; lease < 0 && !r.LeaseUntil.IsZero() {
		r.Lease = r.LeaseUntil.Sub(r.UpdatedAt)
	}
	if r.Attempt < 0 && r.State != driver.Expired {
		r.Attempt = 1
	}
	r.Attempt = max(r.Attempt, 0)
	if r.State == driver.Completed && r.CompletedAt.IsZero() {
		r.CompletedAt = r.UpdatedAt
	}
	return r, err
}

// bytesOrNull stores empty bytes as NULL.
func bytesOrNull[B ~string | ~[]byte](b B) []byte {
	if len(b) == 0 {
		return nil
	}
	return []byte(b)
}

// micros is a duration as it is stored. A fraction is rounded up, so that it does not become 0.
func micros(d time.Duration) int64 {
	n := d.Microseconds()
	if d > time.Duration(n)*time.Microsecond {
		n++
	}
	return n
}

// sqlStore writes records back. Parameters: see semel_store.
const sqlStore = `SELECT semel_store($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
  $20, $21, $22, $23, $24, $25, $26)`

// store adds the statement that writes back locked records, in the order of their places.
func (p *pipeline) store(rs []driver.Record) {
	for sum, at := 0, 0; at < len(rs); at++ {
		if sum += len(rs[at].Result); sum > flushBytes && at > 0 {
			p.storeSome(rs[:at])
			rs, sum, at = rs[at:], 0, -1
		}
	}
	p.storeSome(rs)
}

func (p *pipeline) storeSome(rs []driver.Record) {
	n := len(rs)
	if n == 0 {
		return
	}
	var (
		places, nonces                       = make(bytess, n), make(uuids, n)
		tokens, leases                       = make(int64s, n), make(int64s, n)
		leaseUntils, updated, completed      = make(stamps, n), make(stamps, n), make(stamps, n)
		retries, retains                     = make(stamps, n), make(stamps, n)
		generations, epochs, beats           = make(int32s, n), make(int32s, n), make(int32s, n)
		attempts, failures, taken, uncertain = make(int32s, n), make(int32s, n), make(int32s, n), make(int32s, n)
		states, takeovers, flags, endings    = make(int16s, n), make(int16s, n), make(int16s, n), make(int16s, n)
		fingerprints, deliveries             = make(bytess, n), make(bytess, n)
		results, reasons, watermarks         = make(bytess, n), make(bytess, n), make(bytess, n)
		digests                              = make(int64s, n)
	)
	for i := range rs {
		r := &rs[i]
		places[i], tokens[i], nonces[i] = placeOf(&r.Key), int64(r.Token), r.Nonce
		leases[i], leaseUntils[i], updated[i], completed[i] = micros(r.Lease), r.LeaseUntil, r.UpdatedAt, r.CompletedAt
		retries[i], retains[i], generations[i], epochs[i] = r.RetryAt, r.RetainUntil, int32(r.Generation), int32(r.Epoch)
		beats[i], attempts[i], failures[i], taken[i] = int32(r.Beat), int32(r.Attempt), int32(r.Failures), int32(r.Takeovers)
		uncertain[i], states[i], takeovers[i] = int32(r.Uncertainty), int16(r.State), int16(r.Takeover)
		endings[i] = int16(r.Ended)
		flags[i] = bit(r.Unknown, 1) | bit(r.Spent, 2) | bit(r.Disposed, 4)
		fingerprints[i], deliveries[i] = bytesOrNull(r.Fingerprint), rowstore.PackDeliveries(r.Key.Raw, r.Deliveries...)
		results[i], reasons[i] = bytesOrNull(r.Result), bytesOrNull(r.Reason)
		watermarks[i], digests[i] = driver.AppendWatermark(nil, &r.Watermark), int64(r.BodyDigest)
	}
	p.exec("write records", sqlStore, places, tokens, nonces, leases, leaseUntils, updated, completed, retries, retains,
		generations, epochs, beats, attempts, failures, taken, uncertain, states, takeovers, flags, fingerprints, deliveries,
		results, reasons, watermarks, digests, endings)
}

func bit(b bool, n int16) int16 {
	if b {
		return n
	}
	return 0
}

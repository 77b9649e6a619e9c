package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// recordColumns in the order of scanRecord.
const recordColumns = `place, token, consumer, rest, state, bits, nonce, created_at, updated_at, lease_until, retain_until,
  completed_at, until, age, body_digest, deliveries, fingerprint, watermark, result, reason, more`

const (
	sqlRecordByPlace = "SELECT " + recordColumns + " FROM semel_record WHERE place = ?"
	sqlRecordByToken = "SELECT " + recordColumns + " FROM semel_record WHERE token = ?"

	// sqlRecordInsert takes token, place, rest, consumer and created_at, then recordValues.
	sqlRecordInsert = `INSERT INTO semel_record (token, place, rest, consumer, created_at, state, bits, nonce, age, until,
  body_digest, deliveries, fingerprint, watermark, result, reason, more)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (place) DO NOTHING`

	// sqlRecordUpdate takes token, recordValues, and the token before.
	sqlRecordUpdate = `UPDATE semel_record SET token = ?, state = ?, bits = ?, nonce = ?, age = ?, until = ?, body_digest = ?,
  deliveries = ?, fingerprint = ?, watermark = ?, result = ?, reason = ?, more = ? WHERE token = ?`

	// sqlComplete is DecideFinish for the plain case: the first run, IN_PROGRESS, ours, Complete, no versions. No row: the
	// table decides. 1 updated_at 2 retain_until in milliseconds 3 result 4 reason 5 token 6 nonce 7 place
	sqlComplete = `UPDATE semel_record SET state = 3, bits = bits & ~4, age = ? - 1000 * created_at, until = ? - created_at,
  result = ?, reason = ?, more = NULL WHERE token = ? AND state = 1 AND nonce = ? AND place = ? AND watermark IS NULL
  AND coalesce(json_remove(more, '$.beat'), '{}') = '{}'`

	sqlRecordDelete = "DELETE FROM semel_record WHERE token = ?"

	// sqlDue makes the next sweep look at a block again.
	sqlDue = `INSERT INTO semel_block (block, due) VALUES (?, 0) ON CONFLICT (block) DO UPDATE SET due = 0`
)

// The column bits. Its lowest two are the takeover policy.
const (
	bitUnknown = 1 << (iota + 2)
	bitSpent
	bitDisposed
	shiftEnded = 5
)

// more is the column of that name: what few records have. Nil is the default of the state.
type more struct {
	Generation  uint32 `json:"generation,omitempty"`
	Epoch       uint32 `json:"epoch,omitempty"`
	Attempt     *int   `json:"attempt,omitempty"`
	Failures    int    `json:"failures,omitempty"`
	Takeovers   int    `json:"takeovers,omitempty"`
	Uncertainty int    `json:"uncertainty,omitempty"`
	Beat        uint32 `json:"beat,omitempty"`
	Lease       int64  `json:"lease,omitempty"`
	RetryAt     *int64 `json:"retry_at,omitempty"`
	CompletedAt *int64 `json:"completed_at,omitempty"`
}

// usualAttempt is the attempt of a record whose column more does not name one.
func usualAttempt(s driver.State) int {
	if s == driver.Expired {
		return 0
	}
	return 1
}

// moreOf is the column more of a record.
func moreOf(r *driver.Record) (any, error) {
	m := more{Epoch: r.Epoch, Failures: r.Failures, Takeovers: r.Takeovers, Uncertainty: r.Uncertainty}
	if r.Generation != 1 {
		m.Generation = r.Generation
	}
	if r.Attempt != usualAttempt(r.State) {
		m.Attempt = &r.Attempt
	}
	switch {
	case r.State == driver.InProgress:
		m.Beat = r.Beat
		if leaseEnd(r)-1000*age(r) != int64(r.Lease) { // the clock stepped back, and the lease was cut
			m.Lease = int64(r.Lease)
		}
	case r.State != driver.Completed && r.Watermark.Running != "": // an older version waits for as long
		m.Lease = int64(r.Lease)
	}
	m.RetryAt = after(r, r.RetryAt)
	if r.State != driver.Completed { // whose updated_at it is
		m.CompletedAt = after(r, r.CompletedAt)
	}
	if m == (more{}) {
		return nil, nil
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// created is when a record was made, as it is stored: in milliseconds.
func created(r *driver.Record) int64 { return r.CreatedAt.UnixMilli() }

// age is the column of that name.
func age(r *driver.Record) int64 { return rowstore.Micro(r.UpdatedAt) - 1000*created(r) }

// leaseEnd is the column until of a record IN_PROGRESS, from which its lease can be read.
func leaseEnd(r *driver.Record) int64 {
	return 1000*(rowstore.Micro(r.LeaseUntil)-1000*created(r)) + int64(r.Lease%time.Microsecond)
}

// after is how long after that a time is, in microseconds. It is nil if there is no such time.
func after(r *driver.Record, t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := rowstore.Micro(t) - 1000*created(r)
	return &n
}

// read reads the column more.
func (m *more) read(text string, r *driver.Record) error {
	if text == "" {
		r.Generation, r.Attempt = 1, usualAttempt(r.State)
		return nil
	}
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return err
	}
	r.Generation, r.Attempt = max(m.Generation, 1), usualAttempt(r.State)
	if m.Attempt != nil {
		r.Attempt = *m.Attempt
	}
	r.Epoch, r.Failures, r.Takeovers, r.Uncertainty, r.Beat = m.Epoch, m.Failures, m.Takeovers, m.Uncertainty, m.Beat
	if m.Lease != 0 {
		r.Lease = time.Duration(m.Lease)
	}
	if m.RetryAt != nil {
		r.RetryAt = time.UnixMicro(1000*created(r) + *m.RetryAt)
	}
	return nil
}

// blockShift: a sweep knows records by blocks of 4096 tokens.
const blockShift = 12

// scanRecord reads recordColumns. Its errors are driver.ErrUnreadable.
func scanRecord(v rowstore.Row) (driver.Record, error) {
	bits := v.Int(5)
	r := driver.Record{
		Token: uint64(v.Int(1)), State: driver.State(v.Int(4)), Takeover: driver.Takeover(bits & 3), Unknown: bits&bitUnknown != 0,
		Spent: bits&bitSpent != 0, Disposed: bits&bitDisposed != 0, Ended: driver.State(bits >> shiftEnded),
		CreatedAt: time.UnixMilli(v.Int(7)), UpdatedAt: v.Time(8), LeaseUntil: v.Time(9), RetainUntil: v.Time(10), CompletedAt: v.Time(11),
		BodyDigest: driver.BodyDigest(v.Int(14)), Fingerprint: driver.Fingerprint(v.Bytes(16)), Result: v.Bytes(18), Reason: v.Text(19),
	}
	copy(r.Nonce[:], v.Bytes(6))
	if r.State == driver.InProgress {
		r.Lease = time.Duration(v.Int(12) - 1000*v.Int(13))
	}
	err := rowstore.Place(v.Bytes(0)).Unpack(&r, v.Text(2), v.Bytes(3), v.Bytes(15), v.Bytes(17))
	if err == nil {
		err = rowstore.Unreadable(&r, new(more).read(v.Text(20), &r))
	}
	return r, err
}

// findStep is how many records one statement reads. To read fewer, the last one is named again.
const findStep = 16

// sqlRecordsByPlace reads findStep records. The driver describes the columns of every result anew, which costs as much as
// several rows.
var sqlRecordsByPlace = "SELECT " + recordColumns + " FROM semel_record WHERE place IN (?" + strings.Repeat(", ?", findStep-1) + ")"

// recordValues adds the columns that change.
func recordValues(v []any, r *driver.Record) ([]any, error) {
	bits := int64(r.Takeover) | rowstore.Flag(r.Unknown)*bitUnknown | rowstore.Flag(r.Spent)*bitSpent | rowstore.Flag(r.Disposed)*bitDisposed |
		int64(r.Ended)<<shiftEnded
	var until any
	switch {
	case r.State == driver.InProgress:
		until = leaseEnd(r)
	case !r.RetainUntil.IsZero():
		until = milli(r.RetainUntil) - created(r)
	}
	more, err := moreOf(r)
	return append(v, int64(r.State), bits, r.Nonce[:], age(r), until, int64(r.BodyDigest),
		rowstore.OrNull(rowstore.PackDeliveries(r.Key.Raw, r.Deliveries...)), rowstore.OrNull([]byte(r.Fingerprint)), watermark(r),
		rowstore.OrNull(r.Result), rowstore.OrNull(r.Reason), more), err
}

// insert writes a record that DecideClaim made of an absent one. false: the key has one already.
func (t *txn) insert(r *driver.Record, place rowstore.Place) (bool, error) {
	var list [17]any
	values, err := recordValues(append(list[:0], int64(r.Token), []byte(place), rowstore.OrNull(place.Rest(&r.Key)), r.Key.Consumer,
		created(r)), r)
	if err != nil {
		return false, err
	}
	n, err := t.s.exec(sqlRecordInsert, values...)
	return n == 1, err
}

// store writes back a record whose token was old. A sweep that knew the block of the new token looks at it again.
func (t *txn) store(old uint64, r *driver.Record) error {
	values, err := recordValues([]any{int64(r.Token)}, r)
	if err != nil {
		return err
	}
	n, err := t.s.exec(sqlRecordUpdate, append(values, int64(old))...)
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("record %q: %d rows have token %d", r.Key.Raw, n, old)
	}
	return t.touch(r.Token)
}

// milli is the end of a retention as it is stored: in milliseconds, rounded up.
func milli(t time.Time) int64 { return (t.UnixMicro() + 999) / 1000 }

// touch lowers what sweeps know of the block of a token.
func (t *txn) touch(token uint64) error {
	if err := t.load(); err != nil {
		return err
	}
	block := int64(token) >> blockShift
	if block >= t.swept {
		return nil
	}
	_, err := t.s.exec(sqlDue, block)
	return err
}

func watermark(r *driver.Record) any {
	return rowstore.OrNull(driver.AppendWatermark(nil, &r.Watermark))
}

// places makes the places of items in the caller's goroutine, because the writing one is busy.
func places[T any](items []T, key func(*T) *driver.Key) []rowstore.Place {
	out := make([]rowstore.Place, len(items))
	for i := range items {
		out[i] = rowstore.PlaceOf(key(&items[i]))
	}
	return out
}

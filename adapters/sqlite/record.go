package sqlite

import (
	sqldriver "database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// hashSize is how much of the SHA-256 of a key is stored. The raw key is compared too (I12): a collision is an error, not a
// lost message.
const hashSize = 16

// recordColumns in the order of scanRecord.
const recordColumns = `token, state, generation, nonce, lease_until, lease, beat, takeover, unknown, updated_at,
  completed_at, retain_until, result, reason, consumer, tenant, key, fingerprint, epoch, spent, attempt, failures,
  takeovers, uncertainty, disposed, retry_at, created_at, deliveries, watermark, body_digest, ended`

const (
	sqlRecordByHash  = "SELECT " + recordColumns + " FROM semel_record WHERE hash = ?"
	sqlRecordByToken = "SELECT " + recordColumns + " FROM semel_record WHERE token = ?"

	// sqlClaimNew inserts the record that DecideClaim makes of an absent one; the constants are its zero values.
	// 1 token 2 hash 3 nonce 4 lease_until 5 lease 6 takeover 7 updated_at 8 consumer 9 tenant 10 key 11 fingerprint
	// 12 created_at 13 deliveries 14 watermark 15 body_digest
	sqlClaimNew = `INSERT INTO semel_record (token, hash, state, generation, nonce, lease_until, lease, beat, takeover,
  unknown, updated_at, completed_at, retain_until, result, reason, consumer, tenant, key, fingerprint, epoch, spent,
  attempt, failures, takeovers, uncertainty, disposed, retry_at, created_at, deliveries, watermark, body_digest)
  VALUES (?, ?, 1, 1, ?, ?, ?, 0, ?, 0, ?, 0, 0, NULL, '', ?, ?, ?, ?, 0, 0, 1, 0, 0, 0, 0, 0, ?, ?, ?, ?)
  ON CONFLICT (hash) DO NOTHING`

	// sqlComplete is DecideFinish for the plain case: IN_PROGRESS, ours, Complete, no versions. No row: the table decides.
	// 1 updated_at 2 completed_at 3 retain_until 4 result 5 reason 6 token 7 nonce 8 generation 9 hash
	sqlComplete = `UPDATE semel_record SET state = 3, updated_at = ?, completed_at = ?, retain_until = ?, result = ?,
  reason = ?, unknown = 0 WHERE token = ? AND state = 1 AND nonce = ? AND generation = ? AND hash = ? AND watermark IS NULL`

	// sqlExtend is DecideExtend for the plain case. 1 lease 2 lease_until 3 updated_at 4 token 5 nonce 6 generation 7 hash
	sqlExtend = `UPDATE semel_record SET lease = ?, lease_until = ?, updated_at = ?, beat = beat + 1
  WHERE token = ? AND state = 1 AND nonce = ? AND generation = ? AND hash = ?`

	sqlRecordUpdate = `UPDATE semel_record SET token = ?, state = ?, generation = ?, nonce = ?, lease_until = ?, lease = ?,
  beat = ?, takeover = ?, unknown = ?, updated_at = ?, completed_at = ?, retain_until = ?, result = ?, reason = ?,
  fingerprint = ?, epoch = ?, spent = ?, attempt = ?, failures = ?, takeovers = ?, uncertainty = ?, disposed = ?,
  retry_at = ?, deliveries = ?, watermark = ?, body_digest = ?, ended = ? WHERE token = ?`

	sqlRecordDelete = "DELETE FROM semel_record WHERE token = ?"

	// sqlDue makes the next sweep look at a block again.
	sqlDue = `INSERT INTO semel_block (block, due) VALUES (?, 0) ON CONFLICT (block) DO UPDATE SET due = 0`
)

// blockShift: a sweep knows records by blocks of 4096 tokens.
const blockShift = 12

// scanRecord reads recordColumns. V is database/sql's any or the driver's Value. Its errors are driver.ErrUnreadable.
func scanRecord[V any](v []V) (driver.Record, error) {
	r, err := unpackRecord(v)
	if err != nil {
		return r, fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return r, nil
}

func unpackRecord[V any](v []V) (driver.Record, error) {
	num := func(i int) int64 { return integer(any(v[i])) }
	r := driver.Record{
		Token: uint64(num(0)), State: driver.State(num(1)), Generation: uint32(num(2)),
		LeaseUntil: fromMicro(num(4)), Lease: time.Duration(num(5)), Beat: uint32(num(6)),
		Takeover: driver.Takeover(num(7)), Unknown: num(8) != 0, UpdatedAt: fromMicro(num(9)),
		CompletedAt: fromMicro(num(10)), RetainUntil: fromMicro(num(11)), Result: blob(any(v[12])), Reason: text(any(v[13])),
		Key:         driver.Key{Consumer: text(any(v[14])), Tenant: text(any(v[15])), Raw: text(any(v[16]))},
		Fingerprint: driver.Fingerprint(blob(any(v[17]))), Epoch: uint32(num(18)), Spent: num(19) != 0,
		Attempt: int(num(20)), Failures: int(num(21)), Takeovers: int(num(22)), Uncertainty: int(num(23)),
		Disposed: num(24) != 0, RetryAt: fromMicro(num(25)), CreatedAt: fromMicro(num(26)),
		BodyDigest: driver.BodyDigest(num(29)), Ended: driver.State(num(30)),
	}
	copy(r.Nonce[:], blob(any(v[3])))
	if r.State > driver.Expired {
		return r, fmt.Errorf("record %q: state %d is unknown", r.Key.Raw, r.State)
	}
	var err error
	if r.Deliveries, err = readDeliveries(text(any(v[27]))); err != nil {
		return r, fmt.Errorf("record %q: read deliveries: %w", r.Key.Raw, err)
	}
	if r.Watermark, err = driver.ParseWatermark(blob(any(v[28]))); err != nil {
		err = fmt.Errorf("record %q: %w", r.Key.Raw, err)
	}
	return r, err
}

func readDeliveries(s string) (ids []string, err error) {
	if s == "" {
		return nil, nil
	}
	if id, ok := strings.CutPrefix(s, `["`); ok { // one plain id, as deliveries writes it
		if id, ok = strings.CutSuffix(id, `"]`); ok && plain(id) {
			return []string{id}, nil
		}
	}
	err = json.Unmarshal([]byte(s), &ids)
	return ids, err
}

// findStep is how many records one statement reads. To read fewer, the last one is named again.
const findStep = 16

// sqlRecordsByHash reads findStep records. The driver describes the columns of every result anew, which costs as much as
// several rows.
var sqlRecordsByHash = "SELECT " + recordColumns + " FROM semel_record WHERE hash IN (?" + strings.Repeat(", ?", findStep-1) + ")"

// readable is a record, or why it cannot be read.
type readable struct {
	driver.Record
	err error
}

// findAll reads the records of some hashes.
func (t *txn) findAll(which []int, hash func(i int) []byte) (map[driver.Key]readable, error) {
	out := make(map[driver.Key]readable, len(which))
	add := func(v []sqldriver.Value) error {
		r, err := scanRecord(v)
		out[r.Key] = readable{r, err}
		return nil
	}
	if len(which) == 1 {
		return out, t.s.query(add, sqlRecordByHash, hash(which[0]))
	}
	args := make([]sqldriver.Value, findStep)
	for len(which) > 0 {
		for i := range args {
			args[i] = hash(which[min(i, len(which)-1)])
		}
		if err := t.s.query(add, sqlRecordsByHash, args...); err != nil {
			return nil, err
		}
		which = which[min(findStep, len(which)):]
	}
	return out, nil
}

// find reads the record of a key. It is absent when there is none, or the hash is that of another key.
func (t *txn) find(k driver.Key, hash []byte) (r readable, err error) {
	err = t.s.query(func(v []sqldriver.Value) error {
		if r.Record, r.err = scanRecord(v); r.Key != k {
			r = readable{}
		}
		return nil
	}, sqlRecordByHash, hash)
	return r, err
}

// insert writes a record that DecideClaim made of an absent one. false: the key has one already.
func (t *txn) insert(r *driver.Record, hash []byte) (bool, error) {
	n, err := t.s.exec(sqlClaimNew, int64(r.Token), hash, r.Nonce[:], micro(r.LeaseUntil), int64(r.Lease),
		int64(r.Takeover), micro(r.UpdatedAt), r.Key.Consumer, r.Key.Tenant, r.Key.Raw, fingerprint(r.Fingerprint),
		micro(r.CreatedAt), deliveries(r.Deliveries), watermark(r), int64(r.BodyDigest))
	return n == 1, err
}

// store writes back a record whose token was old. A sweep that knew the block of the new token looks at it again.
func (t *txn) store(old uint64, r *driver.Record) error {
	n, err := t.s.exec(sqlRecordUpdate, int64(r.Token), int64(r.State), int64(r.Generation), r.Nonce[:],
		micro(r.LeaseUntil), int64(r.Lease), int64(r.Beat), int64(r.Takeover), flag(r.Unknown), micro(r.UpdatedAt),
		micro(r.CompletedAt), micro(r.RetainUntil), bytesOrNull(r.Result), r.Reason, fingerprint(r.Fingerprint),
		int64(r.Epoch), flag(r.Spent), int64(r.Attempt), int64(r.Failures), int64(r.Takeovers), int64(r.Uncertainty),
		flag(r.Disposed), micro(r.RetryAt), deliveries(r.Deliveries), watermark(r), int64(r.BodyDigest), int64(r.Ended), int64(old))
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("record %q: %d rows have token %d", r.Key.Raw, n, old)
	}
	return t.touch(r.Token)
}

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

func fingerprint(f driver.Fingerprint) sqldriver.Value {
	if f == "" {
		return nil
	}
	return []byte(f)
}

// bytesOrNull stores empty bytes as NULL.
func bytesOrNull(b []byte) sqldriver.Value {
	if len(b) == 0 {
		return nil
	}
	return b
}

func watermark(r *driver.Record) sqldriver.Value {
	return bytesOrNull(driver.AppendWatermark(nil, &r.Watermark))
}

// deliveries encodes the ids of deliveries: a JSON array, or nothing.
func deliveries(ids []string) string {
	switch {
	case len(ids) == 0:
		return ""
	case len(ids) == 1 && plain(ids[0]):
		return `["` + ids[0] + `"]`
	}
	b, err := json.Marshal(ids)
	if err != nil {
		return "" // strings always marshal
	}
	return string(b)
}

// plain reports that s is its own JSON string.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// hashes hashes the keys of items in the caller's goroutine, because the writing one is busy.
func hashes[T any](items []T, key func(*T) *driver.Key) [][]byte {
	out := make([][]byte, len(items))
	all := make([]byte, 0, hashSize*len(items))
	for i := range items {
		h := key(&items[i]).Hash()
		all = append(all, h[:hashSize]...)
		out[i] = all[hashSize*i : hashSize*(i+1) : hashSize*(i+1)]
	}
	return out
}

// checkToken reports a token that fits the signed column. No store draws others.
func checkToken(token uint64) bool { return token <= math.MaxInt64 }

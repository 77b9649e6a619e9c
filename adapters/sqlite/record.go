package sqlite

import (
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// hashSize is how much of the SHA-256 of a key is stored. The raw key is compared too (I12): a collision is an error, not a
// lost message.
const hashSize = 16

// recordColumns in the order of scanRecord.
const recordColumns = `token, state, generation, nonce, lease_until, lease, beat, takeover, unknown, updated_at,
  completed_at, retain_until, result, reason, consumer, tenant, key, fingerprint, epoch, spent, attempt, failures,
  takeovers, uncertainty, disposed, retry_at, created_at, deliveries, watermark, body_digest, ended, hash`

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

// scanRecord reads recordColumns. Its errors are driver.ErrUnreadable.
func scanRecord(v rowstore.Row) (driver.Record, error) {
	r := driver.Record{
		Token: uint64(v.Int(0)), State: driver.State(v.Int(1)), Generation: uint32(v.Int(2)),
		LeaseUntil: v.Time(4), Lease: time.Duration(v.Int(5)), Beat: uint32(v.Int(6)),
		Takeover: driver.Takeover(v.Int(7)), Unknown: v.Flag(8), UpdatedAt: v.Time(9),
		CompletedAt: v.Time(10), RetainUntil: v.Time(11), Result: v.Bytes(12), Reason: v.Text(13),
		Key:         driver.Key{Consumer: v.Text(14), Tenant: v.Text(15), Raw: v.Text(16)},
		Fingerprint: driver.Fingerprint(v.Bytes(17)), Epoch: uint32(v.Int(18)), Spent: v.Flag(19),
		Attempt: int(v.Int(20)), Failures: int(v.Int(21)), Takeovers: int(v.Int(22)), Uncertainty: int(v.Int(23)),
		Disposed: v.Flag(24), RetryAt: v.Time(25), CreatedAt: v.Time(26),
		BodyDigest: driver.BodyDigest(v.Int(29)), Ended: driver.State(v.Int(30)),
	}
	copy(r.Nonce[:], v.Bytes(3))
	var err error
	if r.State > driver.Expired {
		err = fmt.Errorf("state %d is unknown", r.State)
	} else if r.Deliveries, err = rowstore.ReadDeliveries(v.Bytes(27)); err == nil {
		r.Watermark, err = driver.ParseWatermark(v.Bytes(28))
	}
	if err != nil {
		return r, fmt.Errorf("%w: record %q: %w", driver.ErrUnreadable, r.Key.Raw, err)
	}
	return r, nil
}

// findStep is how many records one statement reads. To read fewer, the last one is named again.
const findStep = 16

// sqlRecordsByHash reads findStep records. The driver describes the columns of every result anew, which costs as much as
// several rows.
var sqlRecordsByHash = "SELECT " + recordColumns + " FROM semel_record WHERE hash IN (?" + strings.Repeat(", ?", findStep-1) + ")"

// insert writes a record that DecideClaim made of an absent one. false: the key has one already.
func (t *txn) insert(r *driver.Record, hash []byte) (bool, error) {
	n, err := t.s.exec(sqlClaimNew, int64(r.Token), hash, r.Nonce[:], micro(r.LeaseUntil), int64(r.Lease),
		int64(r.Takeover), micro(r.UpdatedAt), r.Key.Consumer, r.Key.Tenant, r.Key.Raw, fingerprint(r.Fingerprint),
		micro(r.CreatedAt), bytesOrNull(rowstore.PackDeliveries(r.Deliveries...)), watermark(r), int64(r.BodyDigest))
	return n == 1, err
}

// store writes back a record whose token was old. A sweep that knew the block of the new token looks at it again.
func (t *txn) store(old uint64, r *driver.Record) error {
	n, err := t.s.exec(sqlRecordUpdate, int64(r.Token), int64(r.State), int64(r.Generation), r.Nonce[:],
		micro(r.LeaseUntil), int64(r.Lease), int64(r.Beat), int64(r.Takeover), flag(r.Unknown), micro(r.UpdatedAt),
		micro(r.CompletedAt), micro(r.RetainUntil), bytesOrNull(r.Result), r.Reason, fingerprint(r.Fingerprint),
		int64(r.Epoch), flag(r.Spent), int64(r.Attempt), int64(r.Failures), int64(r.Takeovers), int64(r.Uncertainty),
		flag(r.Disposed), micro(r.RetryAt), bytesOrNull(rowstore.PackDeliveries(r.Deliveries...)), watermark(r), int64(r.BodyDigest), int64(r.Ended), int64(old))
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

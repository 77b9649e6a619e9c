package mysql

import (
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// recordColumns are the columns of semel_record.
var recordColumns = []string{
	"place", "rest", "consumer", "created_at",
	"token", "state", "bits", "ended", "nonce", "updated_at", "lease_until", "retain_until", "completed_at", "retry_at", "lease",
	"body_digest", "generation", "epoch", "attempt", "failures", "takeovers", "uncertainty", "beat", "deliveries", "fingerprint",
	"watermark", "result", "reason",
}

const (
	bitUnknown  = 4
	bitSpent    = 8
	bitDisposed = 16
)

// sqlUpsert are the parts of the statement that writes records: head, values of a record, tail.
var sqlUpsert = func() (p [3]string) {
	p[0] = "INSERT INTO semel_record (" + strings.Join(recordColumns, ", ") + ") VALUES "
	p[1] = values(len(recordColumns))
	for i, c := range recordColumns[1:] {
		sep := ", "
		if i == 0 {
			sep = " ON DUPLICATE KEY UPDATE "
		}
		p[2] += sep + c + " = VALUES(" + c + ")"
	}
	return p
}()

// values is a list of n placeholders in parentheses.
func values(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// recordValues are the values of recordColumns.
func recordValues(r *driver.Record) []any {
	place := rowstore.PlaceOf(&r.Key)
	bits := int64(r.Takeover) | rowstore.Flag(r.Unknown)*bitUnknown | rowstore.Flag(r.Spent)*bitSpent | rowstore.Flag(r.Disposed)*bitDisposed
	return []any{
		[]byte(place), rowstore.OrNull(place.Rest(&r.Key)), []byte(r.Key.Consumer), rowstore.Micro(r.CreatedAt),
		int64(r.Token), int64(r.State), bits, unless(int64(r.Ended), 0), r.Nonce[:], rowstore.Micro(r.UpdatedAt), unless(rowstore.Micro(r.LeaseUntil), 0),
		unless(rowstore.Micro(r.RetainUntil), 0), unless(rowstore.Micro(r.CompletedAt), 0), unless(rowstore.Micro(r.RetryAt), 0), unless(ceil(r.Lease), 0),
		unless(int64(r.BodyDigest), 0), unless(int64(r.Generation), 1), unless(int64(r.Epoch), 0), unless(int64(r.Attempt), 0),
		unless(int64(r.Failures), 0), unless(int64(r.Takeovers), 0), unless(int64(r.Uncertainty), 0), unless(int64(r.Beat), 0),
		rowstore.OrNull(rowstore.PackDeliveries(r.Key.Raw, r.Deliveries...)), rowstore.OrNull([]byte(r.Fingerprint)),
		rowstore.OrNull(driver.AppendWatermark(nil, &r.Watermark)), rowstore.OrNull(r.Result), rowstore.OrNull([]byte(r.Reason)),
	}
}

// readRecord reads recordColumns. Its errors are driver.ErrUnreadable.
func readRecord(v rowstore.Row) (driver.Record, error) {
	bits := v.Int(6)
	r := driver.Record{
		CreatedAt: v.Time(3), Token: uint64(v.Int(4)), State: driver.State(v.Int(5)), Takeover: driver.Takeover(bits & 3),
		Unknown: bits&bitUnknown != 0, Spent: bits&bitSpent != 0, Disposed: bits&bitDisposed != 0, Ended: driver.State(v.Int(7)),
		UpdatedAt: v.Time(9), LeaseUntil: v.Time(10), RetainUntil: v.Time(11), CompletedAt: v.Time(12), RetryAt: v.Time(13),
		Lease: time.Duration(v.Int(14)) * time.Microsecond, BodyDigest: driver.BodyDigest(v.Int(15)), Generation: 1,
		Epoch: uint32(v.Int(17)), Attempt: int(v.Int(18)), Failures: int(v.Int(19)), Takeovers: int(v.Int(20)),
		Uncertainty: int(v.Int(21)), Beat: uint32(v.Int(22)), Fingerprint: driver.Fingerprint(v.Bytes(24)), Result: v.Bytes(26), Reason: v.Text(27),
	}
	copy(r.Nonce[:], v.Bytes(8))
	if v[16] != nil {
		r.Generation = uint32(v.Int(16))
	}
	err := rowstore.Place(v.Bytes(0)).Unpack(&r, v.Text(2), v.Bytes(1), v.Bytes(23), v.Bytes(25))
	return r, err
}

// ceil is a duration in whole microseconds.
func ceil(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// unless stores a usual value as NULL.
func unless(n, usual int64) any {
	if n == usual {
		return nil
	}
	return n
}

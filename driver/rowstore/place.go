package rowstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// Place is where the record of a key stands in the index of semel_record. It follows the key's bytes, so that the records of
// keys that are made in an order (numbers, UUIDv7, offsets) are neighbours in the index: the pages that a checkpoint makes the
// database write whole are then few. A hash scatters them.
//
// A place has at most 255 bytes, which every database can index:
//
//	consumer  6 bytes of its SHA-256
//	tenant    its length as uvarint, then its bytes
//	key       its bytes
//
// A longer one is cut after 239 bytes and ends with half of the SHA-256 of consumer, tenant and key. It has exactly 255 bytes,
// which no other has. The bytes of a key are compared wherever a record is read (invariant I12): where two consumers have one
// hash, which happens by chance to two of 10⁹ databases with a thousand of them, the second claim of a key that both use is
// refused with [ErrCollision].
type Place string

const (
	maxPlace      = 255
	consumerBytes = 6
	hashBytes     = 16
)

// PlaceOf returns the place of a key.
func PlaceOf(k *driver.Key) Place {
	consumer := sha256.Sum256([]byte(k.Consumer))
	b := make([]byte, 0, maxPlace) // on the stack
	b = appendKey(append(b, consumer[:consumerBytes]...), k)
	if len(b) < maxPlace {
		return Place(b)
	}
	h := k.Hash()
	return Place(append(b[:maxPlace-hashBytes], h[:hashBytes]...))
}

// Rest returns what a record has to store beside its place and its consumer so that [Place.Key] can return the key: nil for all
// but long keys.
func (p Place) Rest(k *driver.Key) []byte {
	if len(p) < maxPlace {
		return nil
	}
	return appendKey(nil, k)
}

// Key returns the key of the record at a place. It returns an error if the bytes are not those of a key.
func (p Place) Key(consumer string, rest []byte) (driver.Key, error) {
	k := driver.Key{Consumer: consumer}
	if rest == nil {
		if len(p) < consumerBytes {
			return k, errPlace
		}
		rest = []byte(p[consumerBytes:])
	}
	n, size := binary.Uvarint(rest)
	if size <= 0 || n > uint64(len(rest)-size) {
		return k, errPlace
	}
	k.Tenant, k.Raw = string(rest[size:size+int(n)]), string(rest[size+int(n):])
	if PlaceOf(&k) != p {
		return k, errPlace
	}
	return k, nil
}

// Unpack sets the key, the deliveries and the watermark of a record that was read at a place, and checks its state. Its errors
// wrap driver.ErrUnreadable.
func (p Place) Unpack(r *driver.Record, consumer string, rest, deliveries, watermark []byte) (err error) {
	if r.Key, err = p.Key(consumer, rest); err != nil {
		return fmt.Errorf("record %d: %w", r.Token, err)
	}
	if r.State == driver.Absent || r.State > driver.Expired {
		err = fmt.Errorf("state %d is unknown", r.State)
	}
	if err == nil {
		r.Deliveries, err = ReadDeliveries(r.Key.Raw, deliveries)
	}
	if err == nil {
		r.Watermark, err = driver.ParseWatermark(watermark)
	}
	return Unreadable(r, err)
}

// Unreadable wraps an error of reading a record in driver.ErrUnreadable; nil stays nil.
func Unreadable(r *driver.Record, err error) error {
	if err != nil {
		err = fmt.Errorf("%w: record %q: %w", driver.ErrUnreadable, r.Key.Raw, err)
	}
	return err
}

var errPlace = fmt.Errorf("%w: its key does not belong to its place", driver.ErrUnreadable)

// appendKey appends tenant and key, from which both can be read again.
func appendKey(b []byte, k *driver.Key) []byte {
	b = binary.AppendUvarint(b, uint64(len(k.Tenant)))
	return append(append(b, k.Tenant...), k.Raw...)
}

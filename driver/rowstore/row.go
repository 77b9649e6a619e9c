package rowstore

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Text is a string that may be stored as NULL when it is empty.
type Text string

// Name is a string of a column that holds only text, no other bytes.
type Name string

// Row is one row of a query: what the client library made of its columns. Times come as time.Time or as microseconds since
// 1970, 0 and NULL being the zero time; flags as bool or number; text as string or []byte.
type Row []any

// Int returns a number. NULL is 0.
func (r Row) Int(i int) int64 {
	switch v := r[i].(type) {
	case int64:
		return v
	case int32:
		return int64(v)
	case int16:
		return int64(v)
	}
	return 0
}

// Flag returns a flag.
func (r Row) Flag(i int) bool {
	if v, ok := r[i].(bool); ok {
		return v
	}
	return r.Int(i) != 0
}

// Text returns text. NULL is "".
func (r Row) Text(i int) string {
	if v, ok := r[i].(string); ok {
		return v
	}
	return string(r.Bytes(i))
}

// Bytes returns bytes. NULL is nil.
func (r Row) Bytes(i int) []byte {
	v, _ := r[i].([]byte)
	return v
}

// Time returns a time.
func (r Row) Time(i int) time.Time {
	if v, ok := r[i].(time.Time); ok {
		return v
	}
	if n := r.Int(i); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}

// nonce reads the owner of an attempt.
func (r Row) nonce(i int) (n driver.Nonce) {
	if v, ok := r[i].([16]byte); ok {
		return v
	}
	copy(n[:], r.Bytes(i))
	return n
}

// bytesOrNull makes both nil and empty bytes NULL.
func bytesOrNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// PackDeliveries returns the ids of deliveries of a key as they are stored: each after its length, nil when there are none.
// An id that is the key, as it is by default, is stored as "", which is no id.
func PackDeliveries(raw string, ids ...string) []byte {
	n := 0
	for _, id := range ids {
		n += binary.MaxVarintLen16 + len(id)
	}
	b := make([]byte, 0, n)
	for _, id := range ids {
		switch id {
		case "":
			continue
		case raw:
			id = ""
		}
		b = append(binary.AppendUvarint(b, uint64(len(id))), id...)
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

// ReadDeliveries reads what PackDeliveries wrote.
func ReadDeliveries(raw string, b []byte) (ids []string, err error) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, errors.New("read deliveries: their lengths are damaged")
		}
		id := raw
		if n > 0 {
			id = string(b[size : size+int(n)])
		}
		ids = append(ids, id)
		b = b[size+int(n):]
	}
	return ids, nil
}

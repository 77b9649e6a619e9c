package rowstore

import (
	"context"
	"database/sql"
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

// Querier is a pool, a connection or a transaction of database/sql.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Query runs a query and calls row for each of its rows.
func Query(ctx context.Context, on Querier, row func(Row) error, query string, args ...any) error {
	found, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }() // Err has its error
	names, err := found.Columns()
	r, dest := make(Row, len(names)), make([]any, len(names))
	for i := range r {
		dest[i] = &r[i]
	}
	for err == nil && found.Next() {
		if err = found.Scan(dest...); err == nil {
			err = row(r)
		}
	}
	return errors.Join(err, found.Err())
}

// Values are arguments as a database without columns for times, flags and UUIDs stores them: as numbers and bytes. text is how
// it stores text.
func Values(args []any, text func(string) any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case string:
			out[i] = text(v)
		case Text:
			out[i] = text(string(v))
		case Name:
			out[i] = text(string(v))
		case Place:
			out[i] = []byte(v)
		case driver.Nonce:
			out[i] = v[:]
		case time.Time:
			out[i] = Micro(v)
		case bool:
			out[i] = Flag(v)
		default:
			out[i] = a
		}
	}
	return out
}

// Micro is a time in microseconds since 1970, 0 for the zero time.
func Micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Flag is a flag as a number.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// OrNull makes what is empty NULL.
func OrNull[T ~string | ~[]byte](v T) any {
	if len(v) == 0 {
		return nil
	}
	return v
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

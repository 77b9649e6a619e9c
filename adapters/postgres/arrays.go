package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Parameters of the multi-row statements: arrays whose elements pgx can encode without making a copy of each. Plain
// slices would do; they cost a box and a reflection for every element, as much as the server needs for the row.
type (
	uuids  [][16]byte
	bytess [][]byte
	int64s []int64
	int32s []int32
	int16s []int16
	// stamps are times; the zero time is NULL.
	stamps []time.Time
)

type (
	uuidItem  [16]byte
	bytesItem []byte
	int64Item int64
	int32Item int32
	int16Item int16
	stampItem time.Time
)

// UUIDValue is pgtype's hook.
func (u *uuidItem) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: *u, Valid: true}, nil }

// BytesValue is pgtype's hook; nil is NULL.
func (b *bytesItem) BytesValue() ([]byte, error) { return *b, nil }

// Int64Value is pgtype's hook.
func (n *int64Item) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

// Int64Value is pgtype's hook.
func (n *int32Item) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

// Int64Value is pgtype's hook.
func (n *int16Item) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

// TimestamptzValue is pgtype's hook.
func (t *stampItem) TimestamptzValue() (pgtype.Timestamptz, error) {
	at := time.Time(*t)
	return pgtype.Timestamptz{Time: at, Valid: !at.IsZero()}, nil
}

func dimensions(n int) []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

func (a uuids) Dimensions() []pgtype.ArrayDimension  { return dimensions(len(a)) }
func (a bytess) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int64s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int32s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int16s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a stamps) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }

func (a uuids) Index(i int) any  { return (*uuidItem)(&a[i]) }
func (a bytess) Index(i int) any { return (*bytesItem)(&a[i]) }
func (a int64s) Index(i int) any { return (*int64Item)(&a[i]) }
func (a int32s) Index(i int) any { return (*int32Item)(&a[i]) }
func (a int16s) Index(i int) any { return (*int16Item)(&a[i]) }
func (a stamps) Index(i int) any { return (*stampItem)(&a[i]) }

func (a uuids) IndexType() any  { return new(uuidItem) }
func (a bytess) IndexType() any { return new(bytesItem) }
func (a int64s) IndexType() any { return new(int64Item) }
func (a int32s) IndexType() any { return new(int32Item) }
func (a int16s) IndexType() any { return new(int16Item) }
func (a stamps) IndexType() any { return new(stampItem) }

// registerArrays tells a connection the types of these parameters: without prepared statements
// (default_query_exec_mode=exec, for poolers) nothing else says them.
func registerArrays(c *pgx.Conn) {
	m := c.TypeMap()
	m.RegisterDefaultPgType(uuids(nil), "_uuid")
	m.RegisterDefaultPgType(bytess(nil), "_bytea")
	m.RegisterDefaultPgType(int64s(nil), "_int8")
	m.RegisterDefaultPgType(int32s(nil), "_int4")
	m.RegisterDefaultPgType(int16s(nil), "_int2")
	m.RegisterDefaultPgType(stamps(nil), "_timestamptz")
}

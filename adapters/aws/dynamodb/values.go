package dynamodb

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type integer interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64
}

func number[T integer](n T) types.AttributeValue {
	if n < 0 {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

func binary(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// text is a string, or bytes if it is not UTF-8, which a DynamoDB string cannot hold.
func text(s string) types.AttributeValue {
	if utf8.ValidString(s) {
		return &types.AttributeValueMemberS{Value: s}
	}
	return binary([]byte(s))
}

func asText(v types.AttributeValue) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case *types.AttributeValueMemberS:
		return v.Value, nil
	case *types.AttributeValueMemberB:
		return string(v.Value), nil
	}
	return "", errType(v, "a string")
}

func asBytes(v types.AttributeValue) ([]byte, error) {
	if b, ok := v.(*types.AttributeValueMemberB); ok {
		return b.Value, nil
	}
	return nil, errType(v, "binary")
}

func asUint(v types.AttributeValue) (uint64, error) {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		return strconv.ParseUint(n.Value, 10, 64)
	}
	return 0, errType(v, "a number")
}

func asInt(v types.AttributeValue) (int64, error) {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		return strconv.ParseInt(n.Value, 10, 64)
	}
	return 0, errType(v, "a number")
}

func errType(v types.AttributeValue, want string) error {
	return fmt.Errorf("is a %T, wanted %s", v, want)
}

func textField[T ~string](name string, at func(r *row) *T) field {
	return field{name, func(r *row) types.AttributeValue {
		if *at(r) == "" {
			return nil
		}
		return text(string(*at(r)))
	}, func(r *row, v types.AttributeValue) error {
		s, err := asText(v)
		*at(r) = T(s)
		return err
	}}
}

func numberField[T integer](name string, at func(r *row) *T) field {
	return field{name, func(r *row) types.AttributeValue {
		if *at(r) == 0 {
			return nil
		}
		return number(*at(r))
	}, func(r *row, v types.AttributeValue) error {
		n, err := asUint(v)
		*at(r) = T(n)
		if err == nil && uint64(*at(r)) != n {
			return errors.New("is too large")
		}
		return err
	}}
}

func boolField(name string, at func(r *row) *bool) field {
	return field{name, func(r *row) types.AttributeValue {
		if !*at(r) {
			return nil
		}
		return &types.AttributeValueMemberBOOL{Value: true}
	}, func(r *row, v types.AttributeValue) error {
		b, ok := v.(*types.AttributeValueMemberBOOL)
		if !ok {
			return errType(v, "a boolean")
		}
		*at(r) = b.Value
		return nil
	}}
}

// timeField keeps a time in microseconds since 1970.
func timeField(name string, at func(r *row) *time.Time) field {
	return field{name, func(r *row) types.AttributeValue {
		if at(r).IsZero() {
			return nil
		}
		return number(at(r).UnixMicro())
	}, func(r *row, v types.AttributeValue) error {
		n, err := asInt(v)
		*at(r) = time.UnixMicro(n)
		return err
	}}
}

func deliveriesValue(r *row) types.AttributeValue {
	if len(r.Deliveries) == 0 {
		return nil
	}
	l := make([]types.AttributeValue, len(r.Deliveries))
	for i, d := range r.Deliveries {
		l[i] = text(d)
	}
	return &types.AttributeValueMemberL{Value: l}
}

func setDeliveries(r *row, v types.AttributeValue) error {
	l, ok := v.(*types.AttributeValueMemberL)
	if !ok {
		return errType(v, "a list")
	}
	for _, d := range l.Value {
		id, err := asText(d)
		if err != nil {
			return err
		}
		r.Deliveries = append(r.Deliveries, id)
	}
	return nil
}

// same compares two values. nil equals no value.
func same(a, b types.AttributeValue) bool {
	switch a := a.(type) {
	case *types.AttributeValueMemberS:
		b, ok := b.(*types.AttributeValueMemberS)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberN:
		b, ok := b.(*types.AttributeValueMemberN)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberB:
		b, ok := b.(*types.AttributeValueMemberB)
		return ok && bytes.Equal(a.Value, b.Value)
	case *types.AttributeValueMemberBOOL:
		b, ok := b.(*types.AttributeValueMemberBOOL)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberNULL:
		_, ok := b.(*types.AttributeValueMemberNULL)
		return ok
	case *types.AttributeValueMemberL:
		b, ok := b.(*types.AttributeValueMemberL)
		return ok && slices.EqualFunc(a.Value, b.Value, same)
	case *types.AttributeValueMemberM:
		b, ok := b.(*types.AttributeValueMemberM)
		return ok && maps.EqualFunc(a.Value, b.Value, same)
	}
	return false
}

// sizeOf returns the size of a value as DynamoDB counts it for its limits and units, or a little more.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
func sizeOf(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return 2 + (len(v.Value)+1)/2
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberL:
		n := 3
		for _, x := range v.Value {
			n += 1 + sizeOf(x)
		}
		return n
	case *types.AttributeValueMemberM:
		n := 3
		for name, x := range v.Value {
			n += 1 + len(name) + sizeOf(x)
		}
		return n
	case *types.AttributeValueMemberSS:
		n := 3
		for _, x := range v.Value {
			n += len(x)
		}
		return n
	case *types.AttributeValueMemberNS:
		n := 3
		for _, x := range v.Value {
			n += 2 + (len(x)+1)/2
		}
		return n
	case *types.AttributeValueMemberBS:
		n := 3
		for _, x := range v.Value {
			n += len(x)
		}
		return n
	}
	return 1
}

// itemSize returns the size of an item.
func itemSize(item attrs) (n int) {
	for name, v := range item {
		n += len(name) + sizeOf(v)
	}
	return n
}

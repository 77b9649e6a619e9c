package harness

import (
	"cmp"
	"slices"
)

// Median is the middle of the values, the mean of the two middle ones of an even number, and zero of none.
func Median[T ~float64 | ~int64](values []T) T {
	s := slices.SortedFunc(slices.Values(values), cmp.Compare)
	n := len(s)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[n/2]
}

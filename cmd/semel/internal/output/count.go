package output

import "fmt"

// Count is a number with its noun: 1 message, 2 messages. many is the plural where it is not one with an s behind it.
func Count[N ~int | ~int64 | ~uint64](n N, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

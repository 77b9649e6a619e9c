package fakedynamodb

import (
	"encoding/json"
	"strings"
	"testing"
)

func toText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Sizes by https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
func TestSizes(t *testing.T) {
	text := func(n int) value { return value{kind: "S", text: strings.Repeat("x", n)} }
	for _, c := range []struct {
		of   value
		want int
	}{
		{text(5), 5}, {value{kind: "S", text: "äö"}, 4}, {value{kind: "B", text: "abc"}, 3}, {value{kind: "BOOL"}, 1},
		{value{kind: "NULL"}, 1},
		{number(1), 2}, {number(100), 2}, {number(123), 3}, {number(-123), 4}, {value{kind: "N", text: "0.0012"}, 2},
		{value{kind: "L"}, 3}, {value{kind: "L", list: []value{text(5), number(1)}}, 3 + 1 + 5 + 1 + 2},
		{value{kind: "M", m: item{}}, 3}, {value{kind: "M", m: item{"ab": text(5)}}, 3 + 1 + 2 + 5},
		{value{kind: "SS", set: []string{"a", "bc"}}, 3}, {value{kind: "NS", set: []string{"1", "123"}}, 2 + 3},
	} {
		if got := c.of.size(); got != c.want {
			t.Errorf("%s has %d bytes, want %d", toText(c.of), got, c.want)
		}
	}
}

package output

import "testing"

func TestCount(t *testing.T) {
	for got, want := range map[string]string{
		Count(0, "finding"):                                                 "0 findings",
		Count(int64(1), "finding"):                                          "1 finding",
		Count(uint64(2), "record"):                                          "2 records",
		Count(1, "moment of doubt", "moments of doubt"):                     "1 moment of doubt",
		Count(3, "moment of doubt", "moments of doubt"):                     "3 moments of doubt",
		Count(7, "dead letter") + " of " + Count(1, "process", "processes"): "7 dead letters of 1 process",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

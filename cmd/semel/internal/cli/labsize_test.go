package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestProgressSaysWhichOfHowMany(t *testing.T) {
	var lines []string
	show := func(line string) { lines = append(lines, line) }
	nth(5, 20, 80, "crash", show)("guard on: 3 of 30")
	nth(0, 1, 80, "crash", show)("alone")
	nth(19, 20, 40, "crash", show)(strings.Repeat("x", 80))
	want := []string{
		"[#####...............] 6 of 20 crash: guard on: 3 of 30", "alone", "[###################.] 20 of 20 crash:…",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}

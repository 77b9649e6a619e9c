// Package nearest finds what somebody meant who misspelt a name.
package nearest

import "strings"

// Name is the known name that is nearest to name, within less than limit edits, and fewer than half of its dead letters; "" when
// there is none.
func Name(name string, known []string, limit int) string {
	best, at := "", limit
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < at && 2*d < len(name) {
			best, at = k, d
		}
	}
	return best
}

// distance is the edit distance of Levenshtein.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

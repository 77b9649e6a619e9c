package output

import (
	"regexp"
	"strings"
)

// plainWord is what no shell takes apart.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// Command is a command line of semel to be pasted into a shell: words that a shell would take apart are quoted.
func Command(words ...string) string {
	out := []string{"semel"}
	for _, w := range words {
		if !plainWord.MatchString(w) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

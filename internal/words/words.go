// Package words has what every face of semel needs to print other people's texts: escapes for a terminal, words of a shell,
// plurals.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
)

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

// Printable makes a string safe for one line of a terminal: control and format characters and invalid UTF-8 are escaped,
// and it is cut after limit runes (0 = not).
func Printable(s string, limit int) string {
	var b strings.Builder
	for n := 0; s != ""; n++ {
		if limit > 0 && n == limit {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		if Invisible(r, size) {
			b.WriteString(Escaped(r, s[0], size))
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// Invisible reports a rune that a terminal obeys, or that changes what it shows of others. size is that of the rune.
func Invisible(r rune, size int) bool {
	return r == utf8.RuneError && size == 1 || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Escaped is a rune, or the invalid byte b, as text: as JSON escapes it.
func Escaped(r rune, b byte, size int) string {
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf(`\x%02x`, b)
	case r < ' ':
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Command is a command line of semel to be pasted into a shell.
func Command(args ...string) string {
	out := []string{"semel"}
	for _, w := range args {
		out = append(out, Quote(w))
	}
	return strings.Join(out, " ")
}

// Quote quotes a text as one word of a shell. It escapes unprintable characters as bash and zsh read them ($'…').
func Quote(word string) string {
	plain, printable := word != "" && word[0] != '=', utf8.ValidString(word)
	for _, r := range word {
		plain = plain && (r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:=@%+,", r))
		printable = printable && unicode.IsPrint(r)
	}
	switch {
	case plain:
		return word
	case printable:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ' && c < 0x7F:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// Duration prints a duration exactly, as flags and files take it: 14d, 36h, 15m, 1m30s.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return driver.DurationText(d)
}

// About is Duration, rounded to milliseconds from a second on.
func About(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Millisecond)
	}
	return Duration(d)
}

// AtLeast is a count for a person: "10,000+" if there can be more.
func AtLeast(n int64, more bool) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if more && n > 0 {
		text += "+"
	}
	return text
}

package canonjson

import (
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// str appends the string at pos. plain reports that the bytes between its quotes sort like its UTF-16 code units: no
// escapes, and nothing above U+DFFF (where UTF-8 puts U+E000..U+FFFF before the surrogate pairs, and UTF-16 after).
func (e *Encoder) str() (plain bool, err error) {
	src, start := e.src, e.pos
	i := start + 1
	for plain = true; i < len(src); {
		c := src[i]
		switch {
		case c == '"':
			e.dst = append(e.dst, src[start:i+1]...)
			e.pos = i + 1
			return plain, nil
		case c == '\\':
			e.dst = append(e.dst, src[start:i]...)
			e.pos = i
			return e.escaped()
		case c < 0x20:
			e.pos = i
			return false, e.fail("a control character in a string")
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n <= 1 {
				e.pos = i
				return false, e.fail("invalid UTF-8")
			}
			plain = plain && c < 0xEE
			i += n
		}
	}
	e.pos = i
	return false, e.fail("the text ends inside a string")
}

// escaped goes on with a string at its first escape: what stands before is in dst already.
func (e *Encoder) escaped() (plain bool, err error) {
	for e.pos < len(e.src) {
		c := e.src[e.pos]
		switch {
		case c == '"':
			e.pos++
			e.dst = append(e.dst, '"')
			return false, nil
		case c == '\\':
			r, n, problem := unescape(e.src[e.pos:])
			if problem != "" {
				return false, e.fail(problem)
			}
			e.pos += n
			e.dst = appendRune(e.dst, r)
		case c < 0x20:
			return false, e.fail("a control character in a string")
		default:
			r, n := utf8.DecodeRune(e.src[e.pos:])
			if r == utf8.RuneError && n <= 1 {
				return false, e.fail("invalid UTF-8")
			}
			e.dst = append(e.dst, e.src[e.pos:e.pos+n]...)
			e.pos += n
		}
	}
	return false, e.fail("the text ends inside a string")
}

// appendRune writes one character of a string in canonical form.
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xF])
	}
	return utf8.AppendRune(dst, r)
}

// unescape reads the escape at the head of b (b[0] is the backslash): the character, the bytes it took, or what is wrong.
func unescape(b []byte) (r rune, n int, problem string) {
	if len(b) < 2 {
		return 0, 0, "the text ends inside an escape"
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2, ""
	case 'b':
		return '\b', 2, ""
	case 't':
		return '\t', 2, ""
	case 'n':
		return '\n', 2, ""
	case 'f':
		return '\f', 2, ""
	case 'r':
		return '\r', 2, ""
	case 'u':
	default:
		return 0, 0, "an unknown escape"
	}
	r, ok := hex4(b)
	if !ok {
		return 0, 0, `\u needs four hex digits`
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, ""
	}
	low, ok := hex4(b[6:])
	if !ok {
		return 0, 0, "a lone surrogate"
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, 0, "a lone surrogate"
	}
	return r, 12, ""
}

// hex4 reads \uXXXX at the head of b.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// compareUTF16 compares the insides of two canonical strings by the UTF-16 code units of what they mean.
func compareUTF16(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		r, n := nextRune(a)
		s, m := nextRune(b)
		if r != s {
			return unit(r) - unit(s)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

func nextRune(b []byte) (rune, int) {
	if b[0] == '\\' {
		r, n, _ := unescape(b) // canonical: it is well-formed
		return r, n
	}
	return utf8.DecodeRune(b)
}

// unit is an order-preserving stand-in for the UTF-16 form of a character: what needs a surrogate pair goes between
// U+D7FF and U+E000, in its own order.
func unit(r rune) int {
	switch {
	case r >= 0x10000:
		return int(r)
	case r >= 0xE000:
		return int(r) + 0x110000
	}
	return int(r)
}

// Unquote returns what a JSON string means; raw stands in quotes. Its errors are *Error, as those of [Append].
func Unquote(raw []byte) (string, error) {
	n := len(raw)
	if n < 2 || raw[0] != '"' || raw[n-1] != '"' {
		return "", &Error{Problem: "not a string"}
	}
	out := make([]byte, 0, n-2)
	for i := 1; i < n-1; {
		c := raw[i]
		switch {
		case c == '\\':
			r, k, problem := unescape(raw[i : n-1])
			if problem != "" {
				return "", &Error{Offset: i, Problem: problem}
			}
			out = utf8.AppendRune(out, r)
			i += k
		case c == '"' || c < 0x20:
			return "", &Error{Offset: i, Problem: "a quote or control character in a string"}
		default:
			r, k := utf8.DecodeRune(raw[i : n-1])
			if r == utf8.RuneError && k <= 1 {
				return "", &Error{Offset: i, Problem: "invalid UTF-8"}
			}
			out = append(out, raw[i:i+k]...)
			i += k
		}
	}
	return string(out), nil
}

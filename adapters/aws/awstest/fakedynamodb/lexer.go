package fakedynamodb

import "strings"

// maxExpression is the size of an expression, in bytes.
const maxExpression = 4096

type tokenKind int

const (
	tokEnd tokenKind = iota
	tokWord
	tokName  // #name
	tokValue // :value
	tokIndex // digits
	tokSign  // anything else
)

type token struct {
	kind tokenKind
	text string
	at   int
}

func deadLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool      { return c >= '0' && c <= '9' }
func inWord(c byte) bool     { return deadLetter(c) || digit(c) || c == '_' }

// scan cuts an expression into tokens; the last is tokEnd. Bytes that belong to no token become signs, for the parser to
// complain about.
func scan(src string) []token {
	var out []token
	for i := 0; i < len(src); {
		c, start := src[i], i
		kind := tokSign
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
			continue
		case deadLetter(c):
			kind = tokWord
			i = wordEnd(src, i)
		case (c == '#' || c == ':') && i+1 < len(src) && inWord(src[i+1]):
			kind = tokName
			if c == ':' {
				kind = tokValue
			}
			i = wordEnd(src, i+1)
		case digit(c):
			kind = tokIndex
			for i < len(src) && digit(src[i]) {
				i++
			}
		case (c == '<' || c == '>') && i+1 < len(src) && (src[i+1] == '=' || c == '<' && src[i+1] == '>'):
			i += 2
		default:
			i++
		}
		out = append(out, token{kind: kind, text: src[start:i], at: start})
	}
	return append(out, token{kind: tokEnd, text: "<EOF>", at: len(src)})
}

func wordEnd(src string, i int) int {
	for i < len(src) && inWord(src[i]) {
		i++
	}
	return i
}

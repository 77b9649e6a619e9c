package canonjson

import (
	"math"
	"strconv"
)

const (
	maxExponent = 100_000_000 // of the text and of the result
	safeDigits  = 15          // integers with this many digits are below 2^53
	safeLimit   = 1 << 53
	minNormal   = 0x1p-1022
)

// number appends the number at pos.
func (e *Encoder) number() error {
	src, start := e.src, e.pos
	i := start
	if src[i] == '-' {
		i++
	}
	from := i
	i = digits(src, i)
	switch {
	case i == from:
		e.pos = i
		return e.fail("a number needs a digit here")
	case src[from] == '0' && i > from+1:
		e.pos = from
		return e.fail("a number must not begin with 0")
	}
	whole := i
	if i < len(src) && src[i] == '.' {
		if i = digits(src, i+1); i == whole+1 {
			e.pos = i
			return e.fail("a number needs a digit after the point")
		}
	}
	mantissa := i
	exponent := 0
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		var ok bool
		if exponent, i, ok = readExponent(src, i+1); !ok {
			e.pos = i
			return e.fail("the exponent needs a digit, and must not exceed 100000000")
		}
	}
	e.pos = i
	if i == whole && i-from <= safeDigits {
		if src[from] == '0' {
			start = from // -0 is 0
		}
		e.dst = append(e.dst, src[start:i]...)
		return nil
	}
	d := decimal{digits: e.digits[:0], negative: from > start, point: whole - from + exponent}
	d.read(src[from:mantissa])
	if len(d.digits) > 0 && (d.point-1 > maxExponent || d.point-1 < -maxExponent) {
		return &Error{Offset: start, Problem: "a number with an exponent beyond 100000000"}
	}
	d.round(src[start:i])
	e.dst, e.digits = d.append(e.dst), d.digits
	return nil
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

func readExponent(b []byte, i int) (exponent, end int, ok bool) {
	negative := false
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		negative = b[i] == '-'
		i++
	}
	end = digits(b, i)
	for _, c := range b[i:end] {
		if exponent = exponent*10 + int(c-'0'); exponent > maxExponent {
			return 0, i, false
		}
	}
	if negative {
		exponent = -exponent
	}
	return exponent, end, end > i
}

// decimal is a number of exact value: 0.DIGITS × 10^point. The digits neither begin nor end with 0; none = zero.
type decimal struct {
	digits   []byte
	point    int
	negative bool
}

// read takes the digits of a mantissa; point is set as if its whole part had no leading zeros.
func (d *decimal) read(mantissa []byte) {
	for _, c := range mantissa {
		switch {
		case c == '.':
		case c == '0' && len(d.digits) == 0:
			d.point--
		default:
			d.digits = append(d.digits, c)
		}
	}
	n := len(d.digits)
	for n > 0 && d.digits[n-1] == '0' {
		n--
	}
	d.digits = d.digits[:n]
}

// round replaces the value by the shortest decimal of its double, as RFC 8785 does, unless the double lies where it
// would swallow digits (see the package comment).
func (d *decimal) round(text []byte) {
	if len(d.digits) <= safeDigits {
		return // up to 15 digits survive the way through a double: the shortest decimal is the value itself
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if f = math.Abs(f); err != nil || f < minNormal || f >= safeLimit {
		return
	}
	var buf [32]byte
	short := strconv.AppendFloat(buf[:0], f, 'e', -1, 64) // d.ddde±dd
	d.digits = append(d.digits[:0], short[0])
	i := 1
	if short[i] == '.' {
		end := digits(short, i+1)
		d.digits = append(d.digits, short[i+1:end]...)
		i = end
	}
	exponent, _, _ := readExponent(short, i+1)
	d.point = exponent + 1
}

// append writes the number in the layout of ECMAScript's Number::toString (ECMA-262, section 6.1.6.1.20).
func (d *decimal) append(dst []byte) []byte {
	k, n := len(d.digits), d.point
	if k == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	switch {
	case k <= n && n <= 21:
		dst = append(dst, d.digits...)
		return appendZeros(dst, n-k)
	case 0 < n && n <= 21:
		dst = append(dst, d.digits[:n]...)
		dst = append(dst, '.')
		return append(dst, d.digits[n:]...)
	case -6 < n && n <= 0:
		dst = appendZeros(append(dst, '0', '.'), -n)
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0])
	if k > 1 {
		dst = append(dst, '.')
		dst = append(dst, d.digits[1:]...)
	}
	dst = append(dst, 'e')
	if n > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(n-1), 10)
}

func appendZeros(dst []byte, n int) []byte {
	for ; n > 0; n-- {
		dst = append(dst, '0')
	}
	return dst
}

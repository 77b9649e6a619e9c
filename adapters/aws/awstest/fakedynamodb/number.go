package fakedynamodb

import (
	"math/big"
	"strconv"
	"strings"
)

// Limits of numbers: 38 significant digits, magnitudes from 1E-130 to 9.99…E+125.
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
const (
	maxDigits = 38
	maxPower  = 125
	minPower  = -130
)

const (
	errOverflow  = "Number overflow. Attempting to store a number with magnitude larger than supported range"
	errUnderflow = "Number underflow. Attempting to store a number with magnitude smaller than supported range"
	errDigits    = "Attempting to store more than 38 significant digits in a Number"
	errNumeric   = "The parameter cannot be converted to a numeric value"
)

// decimal is a number: int × 10^exp, without trailing zeros in int.
type decimal struct {
	int *big.Int
	exp int
}

// parseNumber reads the text of a number and holds it against the limits.
func parseNumber(s string) (decimal, error) {
	digits, exp, ok := splitNumber(s)
	if !ok {
		if s == "" {
			return decimal{}, invalid("%s", errNumeric)
		}
		return decimal{}, invalid("%s: %s", errNumeric, s)
	}
	neg := strings.HasPrefix(digits, "-")
	digits = strings.TrimLeft(strings.TrimLeft(digits, "+-"), "0")
	if digits == "" {
		return decimal{int: new(big.Int)}, nil
	}
	short := strings.TrimRight(digits, "0")
	exp += len(digits) - len(short)
	switch power := exp + len(short) - 1; {
	case power > maxPower:
		return decimal{}, invalid("%s", errOverflow)
	case power < minPower:
		return decimal{}, invalid("%s", errUnderflow)
	case len(short) > maxDigits:
		return decimal{}, invalid("%s", errDigits)
	}
	d := decimal{int: new(big.Int), exp: exp}
	d.int.SetString(short, 10)
	if neg {
		d.int.Neg(d.int)
	}
	return d, nil
}

// splitNumber cuts a number into its digits, with the sign, and its exponent.
func splitNumber(s string) (digits string, exp int, ok bool) {
	mantissa, power, scientific := s, "", false
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, power, scientific = s[:i], s[i+1:], true
	}
	if scientific {
		n, err := strconv.ParseInt(power, 10, 32)
		if err != nil || len(power) > 11 {
			return "", 0, false
		}
		exp = int(n)
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	digits = whole + part
	bare := digits
	if bare != "" && (bare[0] == '-' || bare[0] == '+') {
		bare = bare[1:]
	}
	if bare == "" || strings.Trim(bare, "0123456789") != "" || strings.ContainsAny(part, "+-") {
		return "", 0, false
	}
	return digits, exp - len(part), true
}

// String is the number as the service returns it: without exponent, leading or trailing zeros.
func (d decimal) String() string {
	s := d.int.String()
	if d.exp >= 0 {
		if s == "0" {
			return s
		}
		return s + strings.Repeat("0", d.exp)
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if n := -d.exp - len(s); n >= 0 {
		s = strings.Repeat("0", n+1) + s
	}
	return sign + s[:len(s)+d.exp] + "." + s[len(s)+d.exp:]
}

func (d decimal) cmp(e decimal) int {
	a, b, _ := aligned(d, e)
	return a.Cmp(b)
}

// add is the exact sum, refused when it needs more digits than the service has. The service calls that an overflow too.
func (d decimal) add(e decimal) (decimal, error) {
	a, b, exp := aligned(d, e)
	sum, err := parseNumber(new(big.Int).Add(a, b).String() + "E" + strconv.Itoa(exp))
	if err != nil {
		return decimal{}, invalid("%s", errOverflow)
	}
	return sum, nil
}

func (d decimal) neg() decimal { return decimal{int: new(big.Int).Neg(d.int), exp: d.exp} }

// aligned brings both numbers to the smaller exponent.
func aligned(d, e decimal) (a, b *big.Int, exp int) {
	exp = min(d.exp, e.exp)
	return scaled(d, exp), scaled(e, exp), exp
}

func scaled(d decimal, exp int) *big.Int {
	f := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.exp-exp)), nil)
	return f.Mul(f, d.int)
}

// mustNumber reads the text of a number that was held against the limits before.
func mustNumber(s string) decimal {
	d, err := parseNumber(s)
	if err != nil {
		panic("fakedynamodb: a stored number cannot be read: " + s)
	}
	return d
}

// numberSize is the size of a number: about one byte for two significant digits and one more.
func numberSize(s string) int {
	sign := 0
	if strings.HasPrefix(s, "-") {
		s, sign = s[1:], 1
	}
	whole, part, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+part, "0")
	if part == "" {
		digits = strings.TrimRight(digits, "0")
	}
	return (len(digits)+1)/2 + 1 + sign
}

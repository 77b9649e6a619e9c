package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Version orders the messages of one key: its bytes compare as the versions do. The first byte is the kind of version.
// Versions of different kinds cannot be compared. The functions of this package make versions. Stores treat them as opaque.
// "" = the key has no versions.
type Version string

// The kinds of versions: the first byte of each. They are stored for years.
const (
	versionInt       = 'i' // integers of any size
	versionSequencer = 's' // S3 sequencers
	versionTime      = 't' // times with tie-breakers
	versionText      = 'x' // bytes
)

// maxMagnitude is the largest integer version in bytes: some 300 digits.
const maxMagnitude = 126

// IntVersion makes a version from an integer.
func IntVersion(n int64) Version {
	if n < 0 {
		return bigVersion(big.NewInt(n))
	}
	return Version(appendNatural([]byte{versionInt}, uint64(n)))
}

func appendNatural(b []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	skip := 0
	for skip < 8 && raw[skip] == 0 {
		skip++
	}
	return append(append(b, byte(0x80+8-skip)), raw[skip:]...)
}

// DecimalVersion makes a version from a decimal integer of up to 300 digits: an optional minus and digits, nothing else.
func DecimalVersion(text string) (Version, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return "", fmt.Errorf("%.40q is not an integer: write a version as digits alone, without point or exponent", text)
	}
	if len(digits) > 300 {
		return "", fmt.Errorf("an integer of %d digits is too long for a version: 300 at most", len(digits))
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return IntVersion(n), nil
	}
	n, _ := new(big.Int).SetString(text, 10) // digits alone: it cannot fail
	return bigVersion(n), nil
}

// bigVersion writes sign and length before the magnitude, so that a longer number is greater, or less if it is negative.
func bigVersion(n *big.Int) Version {
	raw := n.Bytes()
	b := make([]byte, 0, 2+len(raw))
	if n.Sign() >= 0 {
		return Version(append(append(b, versionInt, byte(0x80+len(raw))), raw...))
	}
	b = append(b, versionInt, byte(0x80-len(raw)))
	for _, c := range raw {
		b = append(b, ^c)
	}
	return Version(b)
}

func (v Version) integer() (n *big.Int, rest Version, ok bool) {
	if len(v) < 2 || v[0] != versionInt {
		return nil, "", false
	}
	size, neg := int(v[1])-0x80, false
	if size < 0 {
		size, neg = -size, true
	}
	if size > maxMagnitude || len(v) < 2+size {
		return nil, "", false
	}
	raw := []byte(v[2 : 2+size])
	if neg {
		for i := range raw {
			raw[i] = ^raw[i]
		}
	}
	n = new(big.Int).SetBytes(raw)
	if neg {
		n.Neg(n)
	}
	return n, v[2+size:], true
}

// Before returns the integer before an integer version, or "" for other kinds.
func (v Version) Before() Version {
	n, rest, ok := v.integer()
	if !ok || rest != "" {
		return ""
	}
	return bigVersion(n.Sub(n, big.NewInt(1)))
}

// TimeVersion makes a version from a time, to the nanosecond, whatever its zone. ties order equal times, the first one first.
// They are versions of this package, such as IntVersion and TextVersion make.
func TimeVersion(t time.Time, ties ...Version) Version {
	b := make([]byte, 13, 32)
	b[0] = versionTime
	binary.BigEndian.PutUint64(b[1:], uint64(t.Unix())^1<<63)
	binary.BigEndian.PutUint32(b[9:], uint32(t.Nanosecond()))
	for _, v := range ties {
		if v == "" || v[0] != versionText {
			b = append(b, v...) // the encoding of an integer contains its length
			continue
		}
		// The end mark is below all other bytes, so that "a" is before "aa", whatever follows.
		b = append(append(b, strings.ReplaceAll(string(v), "\x00", "\x00\xff")...), 0)
	}
	return Version(b)
}

// SequencerVersion makes a version from the sequencer of an S3 event: hexadecimal digits, compared as if the shorter one were
// padded with zeros on the right, as Amazon S3 defines it. It orders the events of one object only.
func SequencerVersion(hex string) (Version, error) {
	if hex == "" || strings.Trim(hex, "0123456789abcdefABCDEF") != "" {
		return "", fmt.Errorf("%.40q is not a sequencer: hexadecimal digits are expected", hex)
	}
	return Version(versionSequencer) + Version(strings.TrimRight(strings.ToUpper(hex), "0")), nil
}

// TextVersion makes a version from a text, which compares byte by byte.
func TextVersion(text string) Version { return Version(versionText) + Version(text) }

// Comparable reports whether two versions are of the same kind, or both empty.
func (v Version) Comparable(o Version) bool {
	return (v == "") == (o == "") && (v == "" || v[0] == o[0])
}

// String returns the version in readable form.
func (v Version) String() string {
	if v == "" {
		return ""
	}
	switch v[0] {
	case versionInt:
		if n, rest, ok := v.integer(); ok && rest == "" {
			return n.String()
		}
	case versionSequencer, versionText:
		return string(v[1:])
	case versionTime:
		if s, err := v.timeText(); err == nil {
			return s
		}
	}
	return fmt.Sprintf("%x", string(v))
}

var errForeign = errors.New("not made by TimeVersion")

func (v Version) timeText() (string, error) {
	if len(v) < 13 {
		return "", errForeign
	}
	b := []byte(v[1:13])
	sec := int64(binary.BigEndian.Uint64(b) ^ 1<<63)
	s := time.Unix(sec, int64(binary.BigEndian.Uint32(b[8:]))).UTC().Format(time.RFC3339Nano)
	for rest := v[13:]; rest != ""; {
		if n, after, ok := rest.integer(); ok {
			s, rest = s+" "+n.String(), after
			continue
		}
		text, after, ok := rest.text()
		if !ok {
			return "", errForeign
		}
		s, rest = s+" "+text, after
	}
	return s, nil
}

func (v Version) text() (text string, rest Version, ok bool) {
	if v[0] != versionText {
		return "", "", false
	}
	for i := 1; i < len(v); i++ {
		switch {
		case v[i] != 0:
		case i+1 < len(v) && v[i+1] == 0xff:
			i++
		default:
			return strings.ReplaceAll(string(v[1:i]), "\x00\xff", "\x00"), v[i+1:], true
		}
	}
	return "", "", false
}

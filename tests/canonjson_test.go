package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/semel-dev/semel/internal/canonjson"
)

// writer makes random JSON texts, in varying spellings.
type writer struct {
	*rand.Rand
	b bytes.Buffer
}

var characters = []rune{
	'a', 'b', 'Z', '0', ' ', '"', '\\', '/', '\b', '\f', '\n', '\r', '\t', 0x01, 0x1f, 0x7f, 0x80, 'é', '€', 0x2028,
	0xd7ff, 0xe000, 0xfb33, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff,
}

func (w *writer) space() {
	for range w.IntN(2) {
		w.b.WriteByte(" \t\n\r"[w.IntN(4)])
	}
}

func (w *writer) text() string {
	var s []rune
	for range w.IntN(5) {
		s = append(s, characters[w.IntN(len(characters))])
	}
	return string(s)
}

func (w *writer) str(s string) {
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r < 0x20 || r < 0x10000 && w.IntN(3) == 0:
			fmt.Fprintf(&w.b, `\u%04X`, r)
		case r >= 0x10000 && w.IntN(2) == 0:
			r -= 0x10000
			fmt.Fprintf(&w.b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}

// number writes numbers on which both rules agree: doubles in their shortest form, and below 2^53 in longer ones too.
func (w *writer) number() {
	var f float64
	switch w.IntN(4) {
	case 0:
		f = float64(w.IntN(2001) - 1000)
	case 1:
		f = float64(w.Int64N(1<<53)) * []float64{1, -1, 0.01, 1e-9}[w.IntN(4)]
	case 2:
		f = float64(w.IntN(100_000)) / 100
	default:
		for f = math.NaN(); math.IsNaN(f) || math.IsInf(f, 0); {
			f = math.Float64frombits(w.Uint64())
		}
	}
	precision := -1
	if a := math.Abs(f); a == 0 || a >= 1e-300 && a < 1<<53 {
		precision = []int{-1, 17, 20}[w.IntN(3)]
	}
	format := byte('e')
	if a := math.Abs(f); precision < 0 && a < 1e21 && a > 1e-6 && w.IntN(2) == 0 {
		format = 'f'
	}
	w.b.WriteString(strconv.FormatFloat(f, format, precision, 64))
}

func (w *writer) value(depth int) {
	w.space()
	defer w.space()
	kind := w.IntN(7)
	if depth == 0 {
		kind = w.IntN(5)
	}
	switch kind {
	case 0:
		w.b.WriteString([]string{"null", "true", "false"}[w.IntN(3)])
	case 1, 2:
		w.str(w.text())
	case 3, 4:
		w.number()
	case 5:
		w.b.WriteByte('[')
		for i := range w.IntN(5) {
			if i > 0 {
				w.b.WriteByte(',')
			}
			w.value(depth - 1)
		}
		w.b.WriteByte(']')
	default:
		w.object(depth)
	}
}

func (w *writer) object(depth int) {
	names := map[string]bool{}
	for range w.IntN(8) {
		names[w.text()] = true
	}
	w.b.WriteByte('{')
	first := true
	for name := range names {
		if !first {
			w.b.WriteByte(',')
		}
		first = false
		w.space()
		w.str(name)
		w.space()
		w.b.WriteByte(':')
		w.value(depth - 1)
	}
	w.b.WriteByte('}')
}

// The canonical form is that of another implementation of RFC 8785, wherever the documented rule for numbers that a
// double cannot hold does not step in.
func TestCanonicalJSONAgreesWithOracle(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	const seed = 8785
	w := writer{Rand: rand.New(rand.NewPCG(seed, 1))}
	for i := range n {
		w.b.Reset()
		w.object(4) // the oracle takes only objects and arrays at the top
		src := w.b.Bytes()
		if !json.Valid(src) {
			t.Fatalf("seed %d, text %d: the test wrote no JSON: %s", seed, i, src)
		}
		want, err := jcs.Transform(src)
		if err != nil {
			t.Fatalf("seed %d, text %d: oracle: %v: %s", seed, i, err, src)
		}
		got, err := canonjson.Append(nil, src)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d, text %d: %s\ngot  %s (%v)\nwant %s", seed, i, src, got, err, want)
		}
	}
}

// Where the two part: the oracle rounds to a double, and two order ids become one.
func TestCanonicalJSONKeepsWhatTheOracleRounds(t *testing.T) {
	for _, v := range [][2]string{
		{`[9007199254740993]`, `[9007199254740992]`},
		{`[18446744073709551615]`, `[18446744073709551616]`},
		{`[300000000000000000000001]`, `[300000000000000000000000]`},
	} {
		x, errX := jcs.Transform([]byte(v[0]))
		y, errY := jcs.Transform([]byte(v[1]))
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			t.Fatalf("the oracle tells %s and %s apart: the documented difference is gone", v[0], v[1])
		}
		a, errA := canonjson.Append(nil, []byte(v[0]))
		b, errB := canonjson.Append(nil, []byte(v[1]))
		if errA != nil || errB != nil || bytes.Equal(a, b) {
			t.Errorf("%s and %s become %s and %s (%v, %v)", v[0], v[1], a, b, errA, errB)
		}
	}
}

// What the oracle writes is canonical already.
func TestOracleOutputIsCanonical(t *testing.T) {
	w := writer{Rand: rand.New(rand.NewPCG(8785, 2))}
	for range 2_000 {
		var texts []string
		for range 20 {
			texts = append(texts, strconv.FormatFloat(math.Float64frombits(w.Uint64()&^(1<<62)), 'e', -1, 64))
			texts = append(texts, strconv.FormatUint(w.Uint64(), 10))
		}
		out, err := jcs.Transform([]byte("[" + strings.Join(texts, ",") + "]"))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := canonjson.Append(nil, out); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%s became %s (%v)", out, again, err)
		}
	}
}

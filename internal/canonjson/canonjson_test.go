package canonjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

func canon(t *testing.T, src string) string {
	t.Helper()
	out, err := Append(nil, []byte(src))
	if err != nil {
		t.Fatalf("Append(%q): %v", src, err)
	}
	return string(out)
}

// RFC 8785, sections 3.2.2 and 3.2.4: the sample object.
func TestRFC8785Sample(t *testing.T) {
	src := `{
  "numbers": [333333333.33333329, 1E30, 4.50,
              2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`
	want := `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
		`"string":"€$\u000f\nA'B\"\\\\\"/"}`
	if got := canon(t, src); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// RFC 8785, section 3.2.3: names are sorted by UTF-16 code units, so that the smiley (a surrogate pair) comes before
// U+FB33.
func TestRFC8785Sorting(t *testing.T) {
	src := `{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`
	var got []string
	d := json.NewDecoder(strings.NewReader(canon(t, src)))
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(string); ok {
			got = append(got, s)
		}
	}
	want := []string{
		"\r", "Carriage Return", "1", "One", "\u0080", "Control", "ö", "Latin Small Letter O With Diaeresis",
		"€", "Euro Sign", "😀", "Emoji: Grinning Face", "\ufb33", "Hebrew Letter Dalet With Dagesh",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// RFC 8785, appendix B: doubles and their text. Each text is canonical already; inside the range where doubles rule,
// a longer spelling of the same double becomes that text.
func TestRFC8785Numbers(t *testing.T) {
	for _, v := range []struct {
		bits uint64
		want string
	}{
		{0x0000000000000000, "0"},
		{0x8000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	} {
		f := math.Float64frombits(v.bits)
		texts := []string{v.want, strconv.FormatFloat(f, 'e', -1, 64), strconv.FormatFloat(f, 'G', -1, 64)}
		if a := math.Abs(f); a >= minNormal && a < safeLimit {
			texts = append(texts, strconv.FormatFloat(f, 'e', 16, 64), strconv.FormatFloat(f, 'e', 40, 64))
		}
		for _, text := range texts {
			if got := canon(t, text); got != v.want {
				t.Errorf("%s: got %s, want %s", text, got, v.want)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for src, want := range map[string]string{
		"1": "1", "1.0": "1", "1e0": "1", "10e-1": "1", "0.1e1": "1", "100E-2": "1",
		"-0": "0", "-0.0": "0", "0e5": "0", "-0E-5": "0", "0.000": "0",
		"-1": "-1", "-1.50": "-1.5", "120": "120", "1.2e2": "120", "1e20": "100000000000000000000",
		"1e21": "1e+21", "0.000001": "0.000001", "0.0000001": "1e-7", "1.25e-7": "1.25e-7",
		"0.10000000000000001": "0.1", "0.1": "0.1",
		// Beyond 2^53 every digit counts.
		"9007199254740991":      "9007199254740991",
		"9007199254740992":      "9007199254740992",
		"9007199254740993":      "9007199254740993",
		"9007199254740993.0":    "9007199254740993",
		"9.007199254740993e15":  "9007199254740993",
		"-9007199254740993":     "-9007199254740993",
		"9007199254740993.25":   "9007199254740993.25",
		"18446744073709551615":  "18446744073709551615",
		"123456789012345678901": "123456789012345678901",
		// 24 digits do not fit ECMAScript's plain layout, but they are all there.
		"123456789012345678901234": "1.23456789012345678901234e+23",
		"1e400":                    "1e+400", "-1E+400": "-1e+400", "1e-400": "1e-400",
		"2.2250738585072014e-308": "2.2250738585072014e-308",
		// Below the normal range too, where doubles end in 0.
		"1.0000000000000000001e-400": "1.0000000000000000001e-400", "4.9406564584124654e-324": "4.9406564584124654e-324",
	} {
		got := canon(t, src)
		if got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
		if again := canon(t, got); again != got {
			t.Errorf("%s: canonical form %s becomes %s", src, got, again)
		}
	}
}

// The exact value of a text decides wherever doubles cannot tell two integers apart; compared with math/big.
func TestIntegersNeverCollide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]*big.Rat{}
	for i := range 20_000 {
		n := new(big.Int).SetUint64(r.Uint64())
		n.Add(n, big.NewInt(int64(i%3)-1))
		text := n.String()
		switch i % 4 {
		case 1:
			text += ".000"
		case 2:
			text = n.String() + "0E-1"
		case 3:
			text = "-" + text
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("big: %s", text)
		}
		got := canon(t, text)
		back, ok := new(big.Rat).SetString(got)
		if !ok || back.Cmp(want) != 0 {
			t.Fatalf("%s became %s: another value", text, got)
		}
		if old := seen[got]; old != nil && old.Cmp(want) != 0 {
			t.Fatalf("%s stands for two integers", got)
		}
		seen[got] = want
	}
}

// A decimal of up to 15 digits keeps its value whatever its size, so no two amounts of money fall together.
func TestFifteenDigitsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		text := fmt.Sprintf("%de%d", r.Int64N(1e15), r.IntN(700)-350)
		want, _ := new(big.Rat).SetString(text)
		got, ok := new(big.Rat).SetString(canon(t, text))
		if !ok || got.Cmp(want) != 0 {
			t.Fatalf("%s became %s", text, canon(t, text))
		}
	}
}

func TestStructure(t *testing.T) {
	for src, want := range map[string]string{
		` [ ] `: `[]`, ` { } `: `{}`, "\t\r\n null \n": `null`, `""`: `""`,
		`{"b":1,"a":{"d":[1, 2],"c":null}}`:         `{"a":{"c":null,"d":[1,2]},"b":1}`,
		`{"b":{"z":1,"y":2},"a":[{"d":1,"c":2}]}`:   `{"a":[{"c":2,"d":1}],"b":{"y":2,"z":1}}`,
		`{"aa":1,"a":2,"":3}`:                       `{"":3,"a":2,"aa":1}`,
		`{"a\u0000":1,"a":2}`:                       `{"a":2,"a\u0000":1}`,
		`{"a!":1,"a\u0001":2,"a":3}`:                `{"a":3,"a\u0001":2,"a!":1}`,
		`"\u007f\u2028\/\b\f\u001F"`:                "\"\u007f\u2028/\\b\\f\\u001f\"",
		`"\ud834\udd1e"`:                            `"𝄞"`,
		`{"\u0061":1}`:                              `{"a":1}`,
		"{\"\U0001F600\":1,\"\uE000\":2,\"z\":3}":   "{\"z\":3,\"\U0001F600\":1,\"\uE000\":2}",
		"{\"q\\\"\":1,\"q\U0001F600\":2,\"q!\":3 }": "{\"q!\":3,\"q\\\"\":1,\"q\U0001F600\":2}",
	} {
		if got := canon(t, src); got != want {
			t.Errorf("%q: got %s, want %s", src, got, want)
		}
	}
}

func TestRejects(t *testing.T) {
	for _, v := range []struct {
		src, problem string
		offset       int
	}{
		{``, "ends where a value", 0},
		{`   `, "ends where a value", 3},
		{`{"a":1,"a":2}`, "same member name twice", 0},
		{`[{"b":1,"a":2,"\u0062":3}]`, "same member name twice", 1},
		{`{"z":1,"a":1,"b":2,"z":3}`, "same member name twice", 0},
		{`"\ud800"`, "lone surrogate", 1},
		{`"\ud800\u0041"`, "lone surrogate", 1},
		{`"\udc00\ud800"`, "lone surrogate", 1},
		{`"\ud83d"`, "lone surrogate", 1},
		{"\"\xff\"", "invalid UTF-8", 1},
		{"\"\xed\xa0\x80\"", "invalid UTF-8", 1},
		{"\"\\n\xc0\xaf\"", "invalid UTF-8", 3},
		{"\"a\nb\"", "control character", 2},
		{"\"\\n\nb\"", "control character", 3},
		{`"\x"`, "unknown escape", 1},
		{`"\u12G4"`, "four hex digits", 1},
		{`"abc`, "inside a string", 4},
		{`"abc\`, "inside an escape", 4},
		{`"abc\n`, "inside a string", 6},
		{`01`, "begin with 0", 0},
		{`-`, "needs a digit", 1},
		{`1.`, "after the point", 2},
		{`1e`, "exponent", 2},
		{`1e+`, "exponent", 3},
		{`1e100000001`, "exponent", 2},
		{`10e100000000`, "beyond", 0},
		{`+1`, "not a value", 0},
		{`.5`, "not a value", 0},
		{`NaN`, "not a value", 0},
		{`nul`, "not a value", 0},
		{`truex`, "after the value", 4},
		{`1 2`, "after the value", 2},
		{`[1,]`, "not a value", 3},
		{`[1 2]`, "expected , or ]", 3},
		{`[1`, "expected , or ]", 2},
		{`{"a":1,}`, "member name", 7},
		{`{a:1}`, "member name", 1},
		{`{"a" 1}`, "expected :", 5},
		{`{"a":1 "b"`, "expected , or }", 7},
		{"\xef\xbb\xbf{}", "not a value", 0},
		{"{}\x00", "after the value", 2},
		{strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "nested deeper", MaxDepth},
	} {
		dst := []byte("kept")
		out, err := Append(dst, []byte(v.src))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Problem, v.problem) || e.Offset != v.offset {
			t.Errorf("%q: got %v, want %q at byte %d", v.src, err, v.problem, v.offset)
		}
		if string(out) != "kept" {
			t.Errorf("%q: dst became %q", v.src, out)
		}
	}
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if got := canon(t, deep); got != deep {
		t.Error("nesting at the limit changed")
	}
	wide := "[" + strings.Repeat("[{}],", 3*MaxDepth) + "[]]"
	if got := canon(t, wide); got != wide {
		t.Error("many shallow values are taken for deep ones")
	}
}

// Objects with many members take another way into order than small ones.
func TestManyMembers(t *testing.T) {
	for _, n := range []int{2, 15, 16, 17, 40, 1000} {
		var src, want strings.Builder
		src.WriteByte('{')
		want.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&src, `"%04d":%d,`, n-1-i, i)
			fmt.Fprintf(&want, `"%04d":%d,`, i, n-1-i)
		}
		s, w := strings.TrimSuffix(src.String(), ",")+"}", strings.TrimSuffix(want.String(), ",")+"}"
		if got := canon(t, s); got != w {
			t.Errorf("%d members: got %s", n, got)
		}
		if out, err := Append(nil, []byte(src.String()+`"0001":1}`)); err == nil && n > 1 {
			t.Errorf("%d members: a repeated name was accepted: %s", n, out)
		}
	}
}

func TestEncoderIsReusable(t *testing.T) {
	var e Encoder
	for range 3 {
		if _, err := e.Append(nil, []byte(`{"b":[{"c":1,`)); err == nil {
			t.Fatal("a cut text was accepted")
		}
		out, err := e.Append([]byte("x"), []byte(`{"b":1,"a":{"d":1,"c":2}}`))
		if err != nil || string(out) != `x{"a":{"c":2,"d":1},"b":1}` {
			t.Fatalf("%s %v", out, err)
		}
	}
}

func TestUnquote(t *testing.T) {
	for src, want := range map[string]string{
		`""`: "", `"a|b"`: "a|b", `"\u0041\n\"\\\/"`: "A\n\"\\/", `"\ud83d\ude00é"`: "😀é", `"\u0000"`: "\x00",
	} {
		if got, err := Unquote([]byte(src)); err != nil || got != want {
			t.Errorf("%s: %q, %v", src, got, err)
		}
	}
	for _, src := range []string{``, `"`, `a`, `"\ud800"`, "\"\xff\"", "\"\n\"", `"a"b"`, `"\"`, `"\u00"`} {
		if got, err := Unquote([]byte(src)); err == nil {
			t.Errorf("%q: accepted as %q", src, got)
		}
	}
}

// The order of names is that of their UTF-16 code units, whatever their spelling.
func TestOrderIsUTF16(t *testing.T) {
	alphabet := []string{"", "a", "z", "!", `\"`, `\\`, `\n`, `\u0001`, "é", "\uD7FF", "\uE000", "\uFFFD", "😀", "\U00010000", "\U0010FFFF"}
	for _, a := range alphabet {
		for _, b := range alphabet {
			for _, c := range alphabet {
				x, y := []byte(a+b), []byte(a+c)
				want := compareUnits(x, y)
				if got := compareUTF16(x, y); sign(got) != want {
					t.Fatalf("%q %q: got %d, want %d", x, y, got, want)
				}
			}
		}
	}
}

func compareUnits(a, b []byte) int {
	decode := func(x []byte) []uint16 {
		s, err := Unquote([]byte(`"` + string(x) + `"`))
		if err != nil {
			panic(err)
		}
		return utf16.Encode([]rune(s))
	}
	x, y := decode(a), decode(b)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return sign(int(x[i]) - int(y[i]))
		}
	}
	return sign(len(x) - len(y))
}

func sign(n int) int { return max(-1, min(n, 1)) }

package driver

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func decimal(t testing.TB, text string) Version {
	t.Helper()
	v, err := DecimalVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVersionsCompareAsTheyOrder lists versions in ascending order: each must be less than the next, and print as it was
// written.
func TestVersionsCompareAsTheyOrder(t *testing.T) {
	at := func(s string, ties ...Version) Version {
		x, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return TimeVersion(x, ties...)
	}
	seq := func(s string) Version {
		v, err := SequencerVersion(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	ints := []string{
		"-" + strings.Repeat("9", 300), "-18446744073709551616", "-9223372036854775809", "-9223372036854775808", "-65536",
		"-256", "-255", "-10", "-9", "-1", "0", "1", "2", "9", "10", "99", "100", "255", "256", "65535", "65536",
		"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
		strings.Repeat("9", 300),
	}
	for name, list := range map[string][]struct {
		v    Version
		text string
	}{
		"times": {
			{at("0001-01-01T00:00:00Z"), "0001-01-01T00:00:00Z"}, {at("1969-12-31T23:59:59.999999999Z"), "1969-12-31T23:59:59.999999999Z"},
			{at("1970-01-01T00:00:00Z"), "1970-01-01T00:00:00Z"}, {at("2026-01-01T10:00:00+02:00"), "2026-01-01T08:00:00Z"},
			{at("2026-01-01T08:00:00.000000001Z"), "2026-01-01T08:00:00.000000001Z"}, {at("2026-01-01T09:00:00Z"), "2026-01-01T09:00:00Z"},
			{at("9999-12-31T23:59:59Z"), "9999-12-31T23:59:59Z"},
		},
		"times with ties": {
			{at("2026-01-01T08:00:00Z", IntVersion(-1)), "2026-01-01T08:00:00Z -1"}, {at("2026-01-01T08:00:00Z", IntVersion(9)), "2026-01-01T08:00:00Z 9"},
			{at("2026-01-01T08:00:00Z", IntVersion(10)), "2026-01-01T08:00:00Z 10"},
			{at("2026-01-01T08:00:00Z", TextVersion("a"), TextVersion("z")), "2026-01-01T08:00:00Z a z"},
			{at("2026-01-01T08:00:00Z", TextVersion("a\x00"), TextVersion("a")), "2026-01-01T08:00:00Z a\x00 a"},
			{at("2026-01-01T08:00:00Z", TextVersion("aa"), IntVersion(1)), "2026-01-01T08:00:00Z aa 1"},
			{at("2026-01-01T08:00:01Z", TextVersion("a")), "2026-01-01T08:00:01Z a"},
		},
		"sequencers": {{seq("00"), ""}, {seq("0055AED6DCD90281E5"), "0055AED6DCD90281E5"}, {seq("0055aed6dcd90281e501"), "0055AED6DCD90281E501"}, {seq("01"), "01"}},
		"texts":      {{TextVersion(""), ""}, {TextVersion("10"), "10"}, {TextVersion("9"), "9"}, {TextVersion("v"), "v"}, {TextVersion("v\x00"), "v\x00"}},
	} {
		for i, x := range list {
			if x.v.String() != x.text {
				t.Errorf("%s: version %d prints as %q, not %q", name, i, x.v, x.text)
			}
			if i > 0 && (x.v <= list[i-1].v || !x.v.Comparable(list[i-1].v)) {
				t.Errorf("%s: %q is not above %q", name, x.v, list[i-1].v)
			}
		}
	}
	for i, text := range ints {
		v := decimal(t, text)
		if v.String() != text || i > 0 && v <= decimal(t, ints[i-1]) {
			t.Errorf("integer %s prints as %q, or is not above %s", text, v, ints[max(i-1, 0)])
		}
	}
	for _, same := range [][2]Version{
		{at("2026-01-01T10:00:00+02:00"), at("2026-01-01T08:00:00Z")}, {seq("0055"), seq("005500")}, {seq("ab"), seq("AB")},
		{decimal(t, "007"), IntVersion(7)}, {decimal(t, "-0"), IntVersion(0)},
	} {
		if same[0] != same[1] {
			t.Errorf("%q and %q are not the same version", same[0], same[1])
		}
	}
	if IntVersion(1).Comparable(TextVersion("1")) || IntVersion(1).Comparable("") || !Version("").Comparable("") {
		t.Error("versions of different kinds are compared")
	}
}

func TestVersionsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "-", "1.0", "1e3", "+1", " 1", "0x1", "1_000", "--1", strings.Repeat("1", 301)} {
		if v, err := DecimalVersion(text); err == nil {
			t.Errorf("%q became the version %q", text, v)
		}
	}
	for _, text := range []string{"", "0x12", "xyz", "12 "} {
		if v, err := SequencerVersion(text); err == nil {
			t.Errorf("%q became the sequencer %q", text, v)
		}
	}
}

// TestVersionBefore: the predecessor is one less, over every change of length and sign.
func TestVersionBefore(t *testing.T) {
	for _, text := range []string{"-256", "-1", "0", "1", "256", "65536", "9223372036854775808", "-9223372036854775808"} {
		n, _ := new(big.Int).SetString(text, 10)
		want := n.Sub(n, big.NewInt(1)).String()
		if got := decimal(t, text).Before(); got.String() != want || got >= decimal(t, text) {
			t.Errorf("before %s is %s, not %s", text, got, want)
		}
	}
	if v := TextVersion("7").Before(); v != "" {
		t.Errorf("before a text is %q", v)
	}
}

func FuzzIntegersKeepTheirOrder(f *testing.F) {
	f.Add([]byte{1}, []byte{1, 0}, true, false)
	f.Add([]byte{0xff}, []byte{0xff, 0xff}, true, true)
	f.Fuzz(func(t *testing.T, a, b []byte, negA, negB bool) {
		num := func(raw []byte, neg bool) *big.Int {
			n := new(big.Int).SetBytes(raw[:min(len(raw), 120)])
			if neg {
				n.Neg(n)
			}
			return n
		}
		x, y := num(a, negA), num(b, negB)
		v, w := decimal(t, x.String()), decimal(t, y.String())
		if got := cmp.Compare(v, w); got != x.Cmp(y) {
			t.Fatalf("%s and %s compare as %d", x, y, got)
		}
		if v.String() != x.String() {
			t.Fatalf("%s prints as %s", x, v)
		}
	})
}

func FuzzTimesAndTiesKeepTheirOrder(f *testing.F) {
	f.Add(int64(0), int64(1), "a", "a\x00", int64(1), int64(2))
	f.Add(int64(-5), int64(-5), "", "\x00", int64(1), int64(-1))
	f.Add(int64(7), int64(7), "\x00\xff", "\x00", int64(0), int64(0))
	f.Fuzz(func(t *testing.T, a, b int64, s, u string, m, n int64) {
		x, y := time.Unix(a>>24, a&0xffffff).UTC(), time.Unix(b>>24, b&0xffffff).UTC()
		v, w := TimeVersion(x, TextVersion(s), IntVersion(m)), TimeVersion(y, TextVersion(u), IntVersion(n))
		want := cmp.Or(x.Compare(y), cmp.Compare(s, u), cmp.Compare(m, n))
		if got := cmp.Compare(v, w); got != want {
			t.Fatalf("%q and %q compare as %d, not %d", v, w, got, want)
		}
	})
}

func FuzzSequencersKeepTheirOrder(f *testing.F) {
	f.Add(uint64(1), uint64(0), uint8(3), uint8(5))
	f.Fuzz(func(t *testing.T, a, b uint64, na, nb uint8) {
		hex := func(n uint64, size uint8) string {
			const digits = "0123456789ABCDEF"
			out := make([]byte, 1+size%16)
			for i := range out {
				out[i] = digits[n>>(4*i)&15]
			}
			return string(out)
		}
		x, y := hex(a, na), hex(b, nb)
		pad := func(s string) string { return s + strings.Repeat("0", 16-len(s)) }
		v, _ := SequencerVersion(strings.ToLower(x))
		w, _ := SequencerVersion(y)
		if got, want := cmp.Compare(v, w), cmp.Compare(pad(x), pad(y)); got != want {
			t.Fatalf("%s and %s compare as %d, not %d", x, y, got, want)
		}
	})
}

// TestWatermarkIsReadAsItWasWritten: random watermarks survive the form that stores keep.
func TestWatermarkIsReadAsItWasWritten(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 1))
	v := func() Version { return IntVersion(rng.Int64() >> rng.IntN(63)) }
	for range 500 {
		w := Watermark{Running: v(), Fingerprint: "rcp1" + Fingerprint(v()), Gap: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			w.Applied, w.Doubt, w.Dropped = v(), v(), v()
		}
		for range rng.IntN(3) {
			w.Skipped = append(w.Skipped, Span{v(), v()})
		}
		raw := AppendWatermark(nil, &w)
		got, err := ParseWatermark(raw)
		if err != nil || !sameWatermark(got, w) {
			t.Fatalf("seed %d: %+v became %+v (%v)", seed, w, got, err)
		}
		for cut := 1; cut < len(raw); cut++ {
			// Cut where a span ends it is a shorter watermark; anywhere else it is refused. Never may it panic.
			if short, err := ParseWatermark(raw[:cut]); err == nil && len(short.Skipped) >= len(w.Skipped) {
				t.Fatalf("seed %d: cut to %d of %d bytes it is read as %+v", seed, cut, len(raw), short)
			}
		}
	}
	if raw := AppendWatermark(nil, &Watermark{}); len(raw) != 0 {
		t.Errorf("no watermark takes %d bytes", len(raw))
	}
	if _, err := ParseWatermark([]byte{3, 0}); err == nil {
		t.Error("a watermark of an unknown form is read")
	}
}

func sameWatermark(a, b Watermark) bool {
	return string(AppendWatermark(nil, &a)) == string(AppendWatermark(nil, &b))
}

package words

import (
	"testing"
	"time"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"a\tb": `a\x09b`, "日本語": "日本…", "\xff": `\xff`, "a\u202eb\u009b2J": `a\u202eb\u009b2J`, "\U000e0001": `\udb40\udc01`, "ab": "ab"} {
		limit := 0
		if in == "日本語" {
			limit = 2
		}
		if got := Printable(in, limit); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for got, want := range map[string]string{
		Count(0, "finding"):                                                 "0 findings",
		Count(int64(1), "finding"):                                          "1 finding",
		Count(uint64(2), "record"):                                          "2 records",
		Count(1, "moment of doubt", "moments of doubt"):                     "1 moment of doubt",
		Count(3, "moment of doubt", "moments of doubt"):                     "3 moments of doubt",
		Count(7, "dead letter") + " of " + Count(1, "process", "processes"): "7 dead letters of 1 process",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	got := Command("records", "resolve", "it's|k", "--as", "completed", "--store", "sqlite:a.db?queue=orders")
	if want := `semel records resolve 'it'\''s|k' --as completed --store 'sqlite:a.db?queue=orders'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestQuote: what is quoted is one word of a shell, and the same text.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"order-1": "order-1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "sqlite:q.db?queue=a": "'sqlite:q.db?queue=a'",
		"a\nb'": `$'a\x0ab\''`, "ö": "'ö'", "\xff": `$'\xff'`, "*": "'*'", "~x": "'~x'",
	} {
		if got := Quote(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		14 * 24 * time.Hour: "14d", 36 * time.Hour: "36h", 5 * time.Minute: "5m", 40500 * time.Millisecond: "40.5s", 90 * time.Second: "1m30s",
		10 * time.Hour: "10h", 0: "0s", 333333333: "333.333333ms",
	} {
		if got := About(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for want, text := range map[string]string{
		"0": AtLeast(0, true), "999": AtLeast(999, false), "10,000+": AtLeast(10_000, true), "1,234,567": AtLeast(1_234_567, false),
	} {
		if text != want {
			t.Errorf("%q, wanted %q", text, want)
		}
	}
}

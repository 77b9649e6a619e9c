package words

import "testing"

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

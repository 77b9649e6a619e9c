package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                  "plain\ttext\n",
		"日本語 é 🙂":                        "日本語 é 🙂",
		"a\x1b[2J\r\x00b":                `a\x1b[2J\x0d\x00b`,
		"a\u009b2J\u007f":                `a\u009b2J\u007f`,
		"a\u202eb\u2028":                 `a\u202eb\u2028`,
		"a\xffb\xc3":                     `a\xffb`, // the last may be the beginning of a rune
		"\U000e0001":                     `\udb40\udc01`,
		"\x1b[31mred":                    `\x1b[31mred`,
		Style("31", "red\x1b[0m") + "\n": "\x1b[31mred\\x1b[0m\x1b[0m\n",
	} {
		for _, size := range []int{1, 2, 3, len(in)} { // however it is cut into writes
			var b bytes.Buffer
			s := NewSafe(&b)
			for rest := []byte(in); len(rest) > 0; {
				n := min(size, len(rest))
				if w, err := s.Write(rest[:n]); w != n || err != nil {
					t.Fatal(w, err)
				}
				rest = rest[n:]
			}
			if b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, b.String(), want)
			}
		}
	}
}

// JSON means the same after a Safe writer.
func TestSafeJSON(t *testing.T) {
	in := "a\x1b\u009b\u202e\U000e0001\u2028\x00 \\x1b é\n"
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := NewSafe(&out).Write(b); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != in || strings.ContainsRune(out.String(), '\u202e') {
		t.Errorf("%s: %q, %v", out.String(), back, err)
	}
}

// A log line is one line without controls, with colours and without; what only looks like an escape stays as it is.
func TestLog(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		log := slog.New(textHandler(NewSafe(&b), slog.LevelInfo, colour))
		log.Warn("\x1b[2J\nINF forged", "key", "k\x1b[2J \u202e", "looks", `\x1b[2J so`, "err", errors.New("e\x1b]0;x\a"), "bad", "caf\xe9-2")
		got := b.String()
		if colour {
			got = strings.NewReplacer("\x1b[2m", "", "\x1b[93m", "", "\x1b[0m", "").Replace(got)
			if len(got) == b.Len() {
				t.Error("no colours")
			}
		}
		if strings.ContainsAny(got, "\x1b\u202e\a") || strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, ` WRN \x1b[2J\x0aINF forged key=`) || !strings.Contains(got, "-2") {
			t.Errorf("colour %v: %q", colour, b.String())
		}
	}
}

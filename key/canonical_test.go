package key_test

import (
	"testing"

	"github.com/semel-dev/semel/key"
)

func TestCanonicalJSON(t *testing.T) {
	for text, want := range map[string]string{
		` { "b" : 1.0, "a" : "\u0041" } `: `{"a":"A","b":1}`,
		`9007199254740993`:                `9007199254740993`,
		`null`:                            `null`,
	} {
		if got, err := key.CanonicalJSON([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%s became %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{``, `{`, `{"a":1,"a":2}`, `{} {}`} {
		if got, err := key.CanonicalJSON([]byte(text)); err == nil {
			t.Errorf("%s became %s", text, got)
		}
	}
}

package key_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

func TestParseKey(t *testing.T) {
	m := &driver.Message{
		ID: "b-1", Body: []byte(`{"specversion":"1.0","source":"/s","id":"ce","order_id":"A","action":"c"}`),
		Headers: map[string]string{"X:Order": "h"},
	}
	for spec, want := range map[string]string{
		"id": "b-1", "header:x:order": "h", "json:/order_id,/action": "A|c", "json:/order_id": "A", "cloudevents": "/s|ce",
	} {
		f, err := key.Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		wantKey(t, f, m, want)
	}
	f, err := key.Parse("body")
	if err != nil {
		t.Fatal(err)
	}
	if k, err := f(m); err != nil || !strings.HasPrefix(k, "json:") {
		t.Errorf("body: %q, %v", k, err)
	}
	if f, err = key.Parse("s3"); err != nil {
		t.Fatal(err)
	}
	wantKey(t, f, &driver.Message{Body: s3Cases["versioned"].bridge(t)}, s3Cases["versioned"].want)
}

func TestSpecErrorsNameTheHint(t *testing.T) {
	for spec, hint := range map[string]string{
		"":                 "id, header:NAME",
		"uuid":             "id, header:NAME",
		"id:7":             "id, header:NAME",
		"s3:bucket":        "id, header:NAME",
		"ID":               "id, header:NAME",
		"header:":          "header:idempotency-key",
		"header":           "header:idempotency-key",
		"json:":            "json:/order_id,/action",
		"json":             "json:/order_id,/action",
		"json:order_id":    `"/order_id"`,
		"json:/a,action":   `"/action"`,
		"json:/a,":         "begin every pointer with /",
		"json:/a~2":        "~1 for /",
		"/order_id,/a":     "json:/order_id,/a",
		"cloudevent":       "cloudevents",
		"none ":            "header:NAME",
		"json: /a":         "begin every pointer with /",
		"body,cloudevents": "header:NAME",
	} {
		for field, parse := range map[string]func() error{
			"Key":         func() error { _, err := key.Parse(spec); return err },
			"Fingerprint": func() error { _, err := key.ParseFingerprint(spec); return err },
		} {
			var e *key.SpecError
			if err := parse(); !errors.As(err, &e) || e.Field != field || !strings.Contains(e.Hint, hint) {
				t.Errorf("%s %q: got %v, want a fix with %q", field, spec, err, hint)
			}
		}
	}
	if _, err := key.Parse("none"); err == nil {
		t.Error("none was accepted as a key")
	}
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/semel-dev/semel/key"
)

// The bounds of what requests name, in bytes. A worker's consumer is its queue, whose name has 200.
const (
	maxConsumer    = 200
	maxTenant      = 1 << 10
	maxDeliveryID  = 1 << 10
	maxReason      = 8 << 10
	maxFingerprint = 64 << 10
	maxHold        = 8 << 10
)

// checkJSON reports a body that is not exactly one JSON value, and one that two readers may understand differently: bytes
// that are not UTF-8, a lone surrogate, a member twice. Read leniently, different keys would become one.
func checkJSON(b []byte) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("the body is empty: want JSON")
	}
	if _, err := key.CanonicalJSON(b); err != nil {
		return fmt.Errorf("the body is not JSON (RFC 7493): %w", err)
	}
	return nil
}

// decode reads exactly one JSON object into a struct. Members have to be written as in the struct's tags; others are refused.
func decode(b []byte, v any) error {
	if err := checkJSON(b); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return errors.New("the body is not a JSON object")
	}
	known := map[string]bool{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	for name := range members {
		if !known[name] {
			return fmt.Errorf("unknown member %.80q", name)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checkText reports a text that is longer than a bound, not UTF-8, or that has control characters, which some stores cannot
// keep. It may be empty.
func checkText(name, text string, most int) error {
	if err := checkSize(name, text, most); err != nil {
		return err
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); i >= 0 {
		return fmt.Errorf("%s: it has a control character (byte %d)", name, i)
	}
	return nil
}

func checkSize(name, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%s: it has %d bytes, and %d are the most", name, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s: it is not UTF-8", name)
	}
	return nil
}

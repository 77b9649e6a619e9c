package driver

import (
	"strings"
	"testing"
)

func TestNewMessageID(t *testing.T) {
	a, b := NewMessageID(), NewMessageID()
	if a == b || len(a) != 32 || strings.Trim(a, "0123456789abcdef") != "" {
		t.Errorf("ids %q and %q", a, b)
	}
}

func TestCheckHeaders(t *testing.T) {
	if err := CheckHeaders(map[string]string{"a\x00b": "ü\u2028", "": ""}); err != nil {
		t.Error(err)
	}
	for _, h := range []map[string]string{{"h": "\xff"}, {"\xff": "h"}} {
		if err := CheckHeaders(h); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
			t.Errorf("%q: %v", h, err)
		}
	}
}

package driver

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNewMessageID: ids are UUIDs of version 7 that sort by the time at which they were made, and differ if it is the same.
func TestNewMessageID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	at := time.Date(2026, 1, 2, 3, 4, 5, 999_999_000, time.UTC)
	var ids []string
	for range 1000 {
		id := messageID(at)
		if !form.MatchString(id) {
			t.Fatalf("%q is not a UUID of version 7", id)
		}
		ids = append(ids, id)
		at = at.Add(250 * time.Nanosecond)
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(ids) {
		t.Error("ids made later do not sort later")
	}
	if !strings.HasPrefix(ids[0], "019b7ca9-") {
		t.Errorf("the time of %s is wrong", ids[0])
	}
	if a, b := messageID(at), messageID(at); a == b || a[:18] != b[:18] || !form.MatchString(NewMessageID()) {
		t.Errorf("two ids of one moment: %s, %s", a, b)
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

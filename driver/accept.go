package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// Helpers for queues that accept messages themselves, such as those in databases.

// NewMessageID makes an id for a message that is sent without one: 128 random bits in hex.
func NewMessageID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// CheckHeaders returns an error for headers that are not UTF-8. Queues that keep headers as JSON call it, because two
// different headers would otherwise be read back as one, and keys are made of headers.
func CheckHeaders(h map[string]string) error {
	for k, v := range h {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("header %q: %q is not UTF-8: encode it (percent or base64), or put it into the body", k, v)
		}
	}
	return nil
}

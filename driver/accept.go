package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// What queues do that accept messages themselves, as those in databases.

// NewMessageID makes an id for a message that is sent without one: 128 random bits in hex.
func NewMessageID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// CheckHeaders refuses headers that are not UTF-8, for queues that keep them as JSON: two that differ would come back as
// one, and keys are made of headers.
func CheckHeaders(h map[string]string) error {
	for k, v := range h {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("header %q: %q is not UTF-8: encode it (percent or base64), or put it into the body", k, v)
		}
	}
	return nil
}

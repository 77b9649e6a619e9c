package driver

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf8"
)

// Helpers for queues that accept messages themselves, such as those in databases.

// NewMessageID makes an id for a message that is sent without one: a UUID of version 7 (RFC 9562). Ids made later sort later,
// so that neighbours in time are neighbours in an index; the clock counts to 250 ns, and 62 bits are random.
func NewMessageID() string { return messageID(time.Now()) }

func messageID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[8:]) // never fails
	const ms = int64(time.Millisecond)
	ns := now.UnixNano()
	// 48 bits of milliseconds, 4 of the version, 12 of the fraction of the millisecond.
	binary.BigEndian.PutUint64(b[:8], uint64(ns/ms)<<16|7<<12|uint64(ns%ms*4096/ms)) //nolint:gosec // it is after 1970
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
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

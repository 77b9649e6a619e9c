package edgehttp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/semel-dev/semel"
)

// HeaderKey is the request header that carries the key. HeaderReplayed is "true" on a response that was stored before, as
// with Stripe.
const (
	HeaderKey      = "Idempotency-Key"
	HeaderReplayed = "Idempotent-Replayed"
)

// maxKey is the longest key in bytes, as with Stripe.
const maxKey = 255

var errNoKey = errors.New("header Idempotency-Key is missing")

// RequestKey reads the Idempotency-Key of a request, as [Middleware] does; ok is false when there is none.
func RequestKey(r *http.Request) (key string, ok bool, err error) {
	if key, err = keyOf(r); errors.Is(err, errNoKey) {
		return "", false, nil
	}
	return key, err == nil, err
}

// keyOf reads the key. In the draft it is a string of structured fields (RFC 9651, section 3.3.3), which is quoted. Most
// clients send it bare, as to Stripe. Both spellings are one key. A bare key has no space and none of `",;\`: with these
// it could be half of a string, a list that a proxy made of two headers, or a key with parameters.
func keyOf(r *http.Request) (string, error) {
	values := r.Header.Values(HeaderKey)
	switch {
	case len(values) == 0:
		return "", errNoKey
	case len(values) > 1:
		return "", errors.New("header Idempotency-Key is given more than once; send one key")
	}
	key, bare := values[0], true
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
		bare = false
	}
	switch {
	case key == "":
		return "", errors.New("header Idempotency-Key is empty")
	case len(key) > maxKey:
		return "", fmt.Errorf("header Idempotency-Key is longer than %d bytes", maxKey)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", errors.New("header Idempotency-Key has characters other than printable ASCII")
		}
	}
	if bare && strings.ContainsAny(key, " \",;\\") {
		return "", errors.New(`header Idempotency-Key: a key with a space or one of ",;\ has to be quoted: "key"`)
	}
	return key, nil
}

// unquote reads a string of RFC 9651, section 4.2.5: backslashes escape quotes and backslashes, and nothing else.
func unquote(s string) (string, error) {
	malformed := errors.New(`header Idempotency-Key: malformed quoted string; want "key" or key`)
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", malformed
	}
	var b strings.Builder
	for inner, i := s[1:len(s)-1], 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			return "", malformed
		case '\\':
			if i++; i == len(inner) || (inner[i] != '"' && inner[i] != '\\') {
				return "", malformed
			}
		}
		b.WriteByte(inner[i])
	}
	return b.String(), nil
}

// recipe names the parts that a fingerprint of this package hashes, and how; see semel.Fingerprint.
const recipe = "eh01"

// fingerprint hashes the parts that make two requests the same: method, target, content type and body, byte for byte.
func fingerprint(r *http.Request, body []byte) semel.Fingerprint {
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type")} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Write(body)
	return semel.Fingerprint(h.Sum([]byte(recipe)))
}

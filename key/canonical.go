package key

import "github.com/semel-dev/semel/internal/canonjson"

// CanonicalJSON returns the canonical form of a JSON text (RFC 8785): two texts of the same value have the same bytes.
// [FingerprintBody] hashes this form. Packages that pass the same value to a service that compares bytes use it too. Numbers
// that a double cannot hold keep their exact decimal value, so that two large IDs stay different.
//
// A text that is not I-JSON (RFC 7493) is an error that names the place: a duplicate member name, a lone surrogate, invalid
// UTF-8.
func CanonicalJSON(text []byte) ([]byte, error) { return canonjson.Append(nil, text) }

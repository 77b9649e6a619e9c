package key

import "github.com/semel-dev/semel/internal/canonjson"

// CanonicalJSON is the canonical form of a JSON text (RFC 8785): two texts of the same value have the same bytes, whoever
// wrote them. It is what [FingerprintBody] hashes, for packages that hand the same value to a service that compares bytes.
// Numbers that a double cannot hold keep their exact decimal value, so that two large ids never become one.
//
// What is not I-JSON (RFC 7493) is an error that names the place: a member name twice, a lone surrogate, invalid UTF-8.
func CanonicalJSON(text []byte) ([]byte, error) { return canonjson.Append(nil, text) }

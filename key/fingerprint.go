package key

import (
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// FingerprintFunc hashes the relevant payload of a message. "" = not compared. Without a fingerprint nothing is a mismatch, but
// records keep a digest of the body: a replay with another body is ReplayedOtherPayload, which is counted and logged as a
// warning. If bodies may differ, name the fields that must not (FingerprintJSON), and only those are compared.
type FingerprintFunc func(m *driver.Message) (driver.Fingerprint, error)

// fingerprintVersion is part of every recipe: raise it when the same recipe begins to hash something else. Records with
// the old version are then not compared, and are no mismatch (protocol section 0).
const fingerprintVersion = "semel-fingerprint-1"

// recipe returns the id at the start of a fingerprint: the first bytes of the SHA-256 of a description of the recipe.
func recipe(parts ...string) [driver.FingerprintRecipe]byte {
	sum := sha256.Sum256([]byte(Tuple(append([]string{fingerprintVersion}, parts...)...)))
	return [driver.FingerprintRecipe]byte(sum[:])
}

func fingerprint(id [driver.FingerprintRecipe]byte, sum [sha256.Size]byte) driver.Fingerprint {
	var b [driver.FingerprintRecipe + sha256.Size]byte
	copy(b[:], id[:])
	copy(b[driver.FingerprintRecipe:], sum[:])
	return driver.Fingerprint(b[:])
}

// bodyRecipe is the recipe of [FingerprintBody], and bodyDigest that of the digests in records.
var bodyRecipe = recipe("body")

const bodyDigest = 1

// bodies hashes the bodies of all messages.
var bodies content

// BodyDigest returns the digest of a message's body for its claim. It is made from the sum of [FingerprintBody], because a body
// that is only formatted differently is the same payload. whole reports whether fp is the fingerprint of the whole body.
func BodyDigest(fp driver.Fingerprint, body []byte) (d driver.BodyDigest, whole bool) {
	if len(fp) == len(bodyRecipe)+sha256.Size && string(fp[:len(bodyRecipe)]) == string(bodyRecipe[:]) {
		return driver.NewBodyDigest(bodyDigest, [sha256.Size]byte([]byte(fp[len(bodyRecipe):]))), true
	}
	sum, _ := bodies.sum(body)
	return driver.NewBodyDigest(bodyDigest, sum), false
}

// FingerprintBody hashes the body: its canonical JSON, so that white space and the order of members do not matter, or its
// bytes if it has no canonical form. The function returns no errors.
func FingerprintBody() FingerprintFunc {
	c, id := new(content), bodyRecipe
	return func(m *driver.Message) (driver.Fingerprint, error) {
		// Bytes without a canonical form are no canonical form: the two kinds of sums cannot meet.
		sum, _ := c.sum(m.Body)
		return fingerprint(id, sum), nil
	}
}

// How a field is marked in a fingerprint.
const (
	fieldMissing byte = iota
	fieldValue
	fieldBody // in place of the fields: the whole body
)

// FingerprintJSON hashes selected fields of a JSON body, named by JSON Pointers (RFC 6901). Choose fields that must be equal in
// two messages with one key, and not times or trace IDs. The order of the pointers does not matter. A missing field differs
// from null. If the body is not JSON, or a selected field has no canonical form, the bytes of the whole body are hashed, so the
// function returns no errors. Other pointers make another recipe: records with the old one are not compared.
//
// It panics if there are no pointers or one is malformed. [ParseFingerprint] returns an error instead.
func FingerprintJSON(pointers ...string) FingerprintFunc {
	pointers = slices.Clone(pointers)
	slices.Sort(pointers)
	pointers = slices.Compact(pointers)
	ptrs, err := parsePointers(pointers)
	if err != nil {
		panic("semel: FingerprintJSON: " + err.Error())
	}
	id := recipe(append([]string{"json"}, pointers...)...)
	return func(m *driver.Message) (driver.Fingerprint, error) {
		b, ok := appendFields(make([]byte, 0, 256), m.Body, ptrs)
		if !ok {
			b = append(append(b[:0], fieldBody), m.Body...)
		}
		return fingerprint(id, sha256.Sum256(b)), nil
	}
}

// appendFields appends each field after a byte that canonical JSON does not contain, so that different lists of fields give
// different bytes.
func appendFields(b, body []byte, ptrs []jsonptr.Pointer) ([]byte, bool) {
	for i, p := range ptrs {
		find := p.FindValid
		if i == 0 {
			find = p.Find // validates the body, for the others too
		}
		raw, err := find(body)
		if errors.Is(err, jsonptr.ErrNotFound) {
			b = append(b, fieldMissing)
			continue
		}
		if err != nil {
			return b, false
		}
		b = append(b, fieldValue)
		if b, err = canonjson.Append(b, raw); err != nil {
			return b, false
		}
	}
	return b, true
}

// fingerprintByKey hashes the key that a key function returns. Messages without such a key have a fingerprint of their own.
func fingerprintByKey(spec string, key Func) FingerprintFunc {
	id := recipe("key", spec)
	return func(m *driver.Message) (driver.Fingerprint, error) {
		text, err := key(m)
		switch {
		case errors.Is(err, ErrMissing):
			return fingerprint(id, sha256.Sum256([]byte{fieldMissing})), nil
		case err != nil:
			return "", err
		}
		return fingerprint(id, sha256.Sum256(append([]byte{fieldValue}, text...))), nil
	}
}

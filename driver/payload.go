package driver

import (
	"crypto/sha256"
	"encoding/binary"
)

// This file compares the payloads of two messages with one key.

// Fingerprint is the hash of the relevant payload, after the id of the recipe that made it: the first FingerprintRecipe bytes
// name the recipe, the rest is the sum. "" = not compared.
type Fingerprint string

// FingerprintRecipe is the length of the recipe id at the start of a [Fingerprint].
const FingerprintRecipe = 4

// Differs reports whether two fingerprints of the same recipe differ. It returns false for fingerprints of different recipes
// and for missing ones, because they cannot be compared.
func (f Fingerprint) Differs(g Fingerprint) bool { return f.comparable(g) && f != g }

// comparable reports whether two fingerprints are of the same recipe.
func (f Fingerprint) comparable(g Fingerprint) bool {
	return len(f) >= FingerprintRecipe && len(g) >= FingerprintRecipe && f[:FingerprintRecipe] == g[:FingerprintRecipe]
}

// BodyDigest is a short digest of a message's body, which every record keeps: the id of its recipe in the highest byte, 1 to
// 127, and 56 bits of the sum below. It shows that a duplicate has another body. Except with [Claim.WholeBody] that is only
// reported, because two bodies can differ and still have the same payload, which only a [Fingerprint] can decide. 0 = unknown.
type BodyDigest uint64

// NewBodyDigest makes a digest of a sum.
func NewBodyDigest(recipe byte, sum [sha256.Size]byte) BodyDigest {
	return BodyDigest(recipe&0x7F)<<56 | BodyDigest(binary.BigEndian.Uint64(sum[:])>>8)
}

// Differs reports whether two digests of the same recipe differ. It returns false for digests of different recipes and for
// unknown ones, because they cannot be compared.
func (d BodyDigest) Differs(e BodyDigest) bool { return d != 0 && e != 0 && d>>56 == e>>56 && d != e }

// compare compares the payloads of a record and a claim: by their fingerprints if these are of one recipe, otherwise by the
// digests of the bodies. Different digests are a mismatch only if the claim's fingerprint covers the whole body and the
// record has none.
func (r *Record) compare(c *Claim) (mismatch, other bool) {
	if r.Fingerprint.comparable(c.Fingerprint) {
		return r.Fingerprint != c.Fingerprint, false
	}
	other = r.BodyDigest.Differs(c.BodyDigest)
	return other && c.WholeBody && r.Fingerprint == "", other
}

package driver

import (
	"crypto/sha256"
	"encoding/binary"
)

// This file is what is compared of the payloads of two messages with one key.

// Fingerprint is the hash of the meaningful payload behind the id of the recipe that made it: the first
// FingerprintRecipe bytes name the recipe, the rest is the sum. "" = not compared.
type Fingerprint string

// FingerprintRecipe is the length of the recipe id at the head of a [Fingerprint].
const FingerprintRecipe = 4

// Differs reports that two fingerprints of the same recipe differ. Fingerprints of different recipes, or missing ones,
// are not compared: they never differ.
func (f Fingerprint) Differs(g Fingerprint) bool { return f.comparable(g) && f != g }

// comparable reports that two fingerprints are of the same recipe.
func (f Fingerprint) comparable(g Fingerprint) bool {
	return len(f) >= FingerprintRecipe && len(g) >= FingerprintRecipe && f[:FingerprintRecipe] == g[:FingerprintRecipe]
}

// BodyDigest is a short digest of a message's body, which every record keeps: the id of its recipe in the highest byte, 1 to
// 127, and 56 bits of the sum below. It tells that a duplicate has another body, and, but for [Claim.WholeBody], only tells:
// what a body may say differently without being another payload only a [Fingerprint] knows. 0 = not known.
type BodyDigest uint64

// NewBodyDigest makes a digest of a sum.
func NewBodyDigest(recipe byte, sum [sha256.Size]byte) BodyDigest {
	return BodyDigest(recipe&0x7F)<<56 | BodyDigest(binary.BigEndian.Uint64(sum[:])>>8)
}

// Differs reports that two digests of the same recipe differ. Digests of different recipes, or unknown ones, are not
// compared: they never differ.
func (d BodyDigest) Differs(e BodyDigest) bool { return d != 0 && e != 0 && d>>56 == e>>56 && d != e }

// compare compares the payloads of a record and a claim: by their fingerprints where these are of one recipe, else by the
// digests of the bodies, which make a mismatch only where the body is what a fingerprint is asked for, and was not then.
func (r *Record) compare(c *Claim) (mismatch, other bool) {
	if r.Fingerprint.comparable(c.Fingerprint) {
		return r.Fingerprint != c.Fingerprint, false
	}
	other = r.BodyDigest.Differs(c.BodyDigest)
	return other && c.WholeBody && r.Fingerprint == "", other
}

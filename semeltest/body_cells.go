package semeltest

import (
	"crypto/sha256"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// body is the digest of a body that is sent under the cell's key: another one for every key, so that a store that mixes
// them up is seen.
func (c *cell) body(name string) driver.BodyDigest {
	return driver.NewBodyDigest(1, sha256.Sum256([]byte(c.key.Raw+" "+name)))
}

// bodyOps are claims with another body than the record's, or an unknown one.
func bodyOps() []op {
	var all []op
	for _, f := range []struct {
		name  string
		fp    driver.Fingerprint
		whole bool
	}{{"none", "", false}, {"of the body", fpSame, true}, {"of the body, other recipe", fpOlder, true}, {"other recipe", fpOlder, false}} {
		for _, body := range []string{"other", "unknown"} {
			name := fmt.Sprintf("claim with body %s, fingerprint %s", body, f.name)
			all = append(all, op{name: name, step: step{make: func(c *cell) request {
				q := &driver.Claim{Key: c.key, Nonce: newNonce(), Fingerprint: f.fp, WholeBody: f.whole, Lease: later}
				if body == "other" {
					q.BodyDigest = c.body(body)
				}
				return request{claim: q}
			}}})
		}
	}
	return all
}

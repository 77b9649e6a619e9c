package postgres

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is what claims with versions need besides (mode D). Their records are decided by the table under a lock: only
// claims that a record answers without being changed, and those of new keys, take one round trip as the others do.

// sqlClaimVersions is sqlClaim for calls in which some claims have versions. 1 hashes 2 nonces 3 leases 4 takeovers
// 5 consumers 6 tenants 7 keys 8 fingerprints 9 deliveries 10 watermarks 11 wait 12 digests. See semel_claim_versions.
const sqlClaimVersions = "SELECT * FROM semel_claim_versions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"

// keepArg is the place of keep among the parameters of sqlClaim, and of the watermarks among those of sqlClaimVersions.
const keepArg = 9

// versioned reports that some of the claims have versions.
func versioned(part keyed, c []driver.Claim) bool {
	for _, i := range part.index {
		if c[i].Version != "" {
			return true
		}
	}
	return false
}

// waits reports a claim that must not make a record: it waits for the version before it.
func waits(c *driver.Claim) bool {
	if c.Version == "" || c.After == "" {
		return false
	}
	_, _, changed := driver.DecideClaim(driver.Record{}, *c, time.Time{}, 0)
	return !changed
}

// makers parts claims into those that make a record where there is none, and those that wait.
func makers(part keyed, c []driver.Claim) (make, wait keyed) {
	for _, i := range part.index {
		if waits(&c[i]) {
			wait, make = part.split(func(i int) bool { return waits(&c[i]) })
			return make, wait
		}
	}
	return part, keyed{}
}

// claimQuery is the statement that makes records for new keys. With keep they are COMPLETED at once, which no versioned one
// may be (see opening.open).
func claimQuery(part keyed, c []driver.Claim, keep *int64, wait time.Duration) (sql string, args []any) {
	args = claimArgs(part, c, keep, wait)
	if !versioned(part, c) {
		return sqlClaim, args
	}
	watermarks := make(bytess, len(part.index))
	for at, i := range part.index {
		r, _, _ := driver.DecideClaim(driver.Record{}, c[i], time.Time{}, 0)
		watermarks[at] = driver.AppendWatermark(nil, &r.Watermark)
	}
	args[keepArg] = watermarks
	return sqlClaimVersions, args
}

// absent decides a claim whose record is not there: one that waits for another version, or only notes its own, does so
// without a record.
func absent(c *driver.Claim) (driver.Grant, bool) {
	if !waits(c) {
		return driver.Grant{}, false
	}
	_, g, _ := driver.DecideClaim(driver.Record{}, *c, time.Time{}, 0)
	return g, true
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// sqlClaim claims keys without a record and reads the records of the others. 1 places 2 nonces 3 leases 4 takeovers
// 5 consumers 6 rests 7 fingerprints 8 deliveries 9 keep 10 wait 11 digests. See semel_claim.
const sqlClaim = "SELECT * FROM semel_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

// sqlClaimOne is the same for one claim. 1 place 2 nonce 3 lease 4 takeover 5 consumer 6 rest 7 fingerprint
// 8 delivery 9 wait 10 digest. See semel_claim_one.
const sqlClaimOne = "SELECT * FROM semel_claim_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

// sqlLookUp reads the records of keys. 1 places. See semel_look.
const sqlLookUp = "SELECT * FROM semel_look($1)"

const (
	// claimTries bounds how often a claim is decided anew because its record went away.
	claimTries = 8
	// lockedRetry is how long the parts of a claim wait, whose whole has waited for Options.LockWait already.
	lockedRetry = 5 * time.Millisecond
)

var errGoesAway = fmt.Errorf("the record goes away whenever it is looked at: %w", driver.ErrNotCommitted)

// claiming is one call of Claim.
type claiming struct {
	s   *Store
	c   []driver.Claim
	out []driver.Grant
	// wait is how long to wait for locked records. brief: not at all where possible, and locked marks the claims whose
	// records were locked.
	wait   time.Duration
	brief  bool
	locked []bool
}

// Claim decides claims: one round trip when every key is new, or has a record that decides without a change. It waits for a
// key that another transaction holds, at most Options.LockWait, and then returns Busy. The other keys do not wait for
// longer. Grant.Err is set for claims whose part of the call failed.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	if len(c) == 0 {
		return nil, nil
	}
	if len(c) == 1 {
		return s.claimOne(ctx, c[0])
	}
	w := s.claim(ctx, c, false)
	for i := range w.out {
		if w.out[i].Err == nil || errors.Is(w.out[i].Err, driver.ErrUnreadable) {
			return w.out, nil
		}
	}
	return nil, fmt.Errorf("claim: %w", w.out[0].Err)
}

func (s *Store) claim(ctx context.Context, c []driver.Claim, brief bool) *claiming {
	w := &claiming{
		s: s, c: c, out: make([]driver.Grant, len(c)), wait: s.db.o.LockWait, brief: brief,
	}
	if brief {
		w.wait, w.locked = min(w.wait, lockedRetry), make([]bool, len(c))
	}
	for _, todo := range sortKeys(len(c), func(i int) *driver.Key { return &c[i].Key }).layers() {
		for range claimTries {
			old := w.fresh(ctx, todo, w.wait)
			if todo = w.known(ctx, old); len(todo.index) == 0 {
				break
			}
		}
		w.fail(todo, errGoesAway)
	}
	return w
}

// claimed is the result of a claim among others.
type claimed struct {
	driver.Grant
	locked bool
}

// claimOne goes together with the claims of other callers. If its record is locked it waits alone.
func (s *Store) claimOne(ctx context.Context, c driver.Claim) ([]driver.Grant, error) {
	g, err := s.db.claims.one(ctx, c)
	if err == nil && g.locked {
		g.Grant = s.claim(ctx, []driver.Claim{c}, false).out[0]
	}
	if err == nil && !errors.Is(g.Err, driver.ErrUnreadable) {
		err = g.Err
	}
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return []driver.Grant{g.Grant}, nil
}

// claimGathered decides the claims of several callers, without long waits for locked records.
func (s *Store) claimGathered(ctx context.Context, c []driver.Claim) ([]claimed, error) {
	w := s.claim(ctx, c, true)
	out := make([]claimed, len(c))
	for i := range out {
		out[i] = claimed{w.out[i], w.locked[i]}
	}
	return out, nil
}

func (w *claiming) fail(part keyed, err error) {
	for _, i := range part.index {
		w.out[i] = driver.Grant{Err: err}
	}
}

// fresh inserts records for keys that have none, or only looks for them (Claim.AtCommit). It returns the claims that have to
// change a record, or to look again. An error is that of the claims of part.
func (w *claiming) fresh(ctx context.Context, part keyed, wait time.Duration) keyed {
	var old []int
	read := func(rows pgx.Rows) (err error) {
		old, _, err = readClaims(rows, part, w.c, w.out, nil)
		return err
	}
	if atCommit := func(i int) bool { return w.c[i].AtCommit }; slices.ContainsFunc(part.index, atCommit) {
		// Most others are redeliveries, whose records are there: they look first too.
		err := w.s.db.ask(ctx, "look up", read, sqlLookUp, part.places)
		part = w.undecided(ctx, part, old, err)
		look, others := part.split(atCommit)
		if len(others.index) == 0 {
			return look
		}
		return w.fresh(ctx, others, wait).and(look)
	}
	part, later := makers(part, w.c)
	if len(part.index) == 0 {
		return later
	}
	var err error
	if len(part.index) == 1 && w.c[part.index[0]].Version == "" {
		err = w.s.db.ask(ctx, "claim", read, sqlClaimOne, claimOneArgs(part.places[0], &w.c[part.index[0]], wait)...)
	} else {
		sql, args := claimQuery(part, w.c, nil, wait)
		err = w.s.db.ask(ctx, "claim", read, sql, args...)
	}
	return w.undecided(ctx, part, old, err).and(later)
}

// undecided returns what is left of the claims of part after their statement.
func (w *claiming) undecided(ctx context.Context, part keyed, old []int, err error) keyed {
	switch {
	case err == nil:
		return part.only(old)
	case code(err) == codeFloor:
		return part
	case code(err) != codeLocked && (code(err) != codeDamaged || len(part.index) == 1):
		w.fail(part, err)
	case len(part.index) == 1:
		w.busy(part)
	default:
		// One of them is locked or cannot be read. The halves show which.
		half := len(part.index) / 2
		a := w.fresh(ctx, keyed{part.places[:half], part.index[:half]}, lockedRetry)
		b := w.fresh(ctx, keyed{part.places[half:], part.index[half:]}, lockedRetry)
		return a.and(b)
	}
	return keyed{}
}

// grantBusy is the grant of a claim whose record is locked. A claim that waits for another version needs no record.
func grantBusy(c *driver.Claim) driver.Grant {
	if g, yes := waits(c); yes {
		return g
	}
	return rowstore.LockedGrant(c)
}

// busy grants claims whose records cannot be looked at.
func (w *claiming) busy(part keyed) {
	for _, i := range part.index {
		if w.brief {
			w.locked[i] = true
		}
		w.out[i] = grantBusy(&w.c[i])
	}
}

func claimArgs(part keyed, c []driver.Claim, keep *int64, wait time.Duration) []any {
	n := len(part.index)
	nonces, leases, takeovers := make(uuids, n), make(int64s, n), make(int16s, n)
	consumers, rests := make(bytess, n), make(bytess, n)
	fingerprints, deliveries, digests := make(bytess, n), make(bytess, n), make(int64s, n)
	for at, i := range part.index {
		x := &c[i]
		nonces[at], leases[at], takeovers[at] = x.Nonce, micros(x.Lease), int16(x.Takeover)
		consumers[at], rests[at] = []byte(x.Key.Consumer), restOf(part.places[at], &x.Key)
		fingerprints[at], digests[at] = bytesOrNull(x.Fingerprint), int64(x.BodyDigest)
		deliveries[at] = rowstore.PackDeliveries(x.Key.Raw, x.DeliveryID)
	}
	return []any{
		part.places, nonces, leases, takeovers, consumers, rests, fingerprints, deliveries, keep, millis(wait), digests,
	}
}

// uuid is a parameter. Without prepared statements pgx does not know what 16 bytes are.
func uuid(b [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: b, Valid: true} }

// claimOneArgs are the parameters of sqlClaimOne.
func claimOneArgs(place []byte, c *driver.Claim, wait time.Duration) []any {
	return []any{
		place, uuid(c.Nonce), micros(c.Lease), int16(c.Takeover), []byte(c.Key.Consumer), restOf(place, &c.Key),
		bytesOrNull(c.Fingerprint), rowstore.PackDeliveries(c.Key.Raw, c.DeliveryID), millis(wait), int64(c.BodyDigest),
	}
}

// readClaims reads the result of sqlClaim: claims that made a record, for which it calls acquired, and those that the table
// decides without a change. old lists all others: they need a lock, or their record went away.
func readClaims(rows pgx.Rows, part keyed, c []driver.Claim, out []driver.Grant, acquired func(driver.Record)) (
	old []int, now time.Time, err error,
) {
	var (
		place   []byte
		token   int64
		found   []byte
		decided = make([]bool, len(part.index))
		locks   = make([]bool, len(part.index)) // there is a record, and it has to change
		near    = 0
	)
	for rows.Next() {
		if err := rows.Scan(&place, &token, &now, &found); err != nil {
			return nil, now, err
		}
		at := part.find(place, near)
		if at == len(part.index) {
			return nil, now, fmt.Errorf("%w: a claim that nobody asked for", errClient)
		}
		near = at + 1
		i := part.index[at]
		var r driver.Record
		if found != nil {
			if decided[at] {
				continue // read again in the savepoint that made it
			}
			if r, err = readRecord(found); err != nil { // of this key alone
				out[i], decided[at] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, err)}, true
				continue
			}
			if r.Key != c[i].Key {
				out[i], decided[at] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, rowstore.ErrCollision)}, true
				continue
			}
		}
		after, g, changed := driver.DecideClaim(r, c[i], now, uint64(token))
		if changed && found != nil {
			locks[at] = true
			continue
		}
		if changed && acquired != nil {
			acquired(after)
		}
		out[i], decided[at] = g, true
	}
	for at, ok := range decided {
		if i := part.index[at]; !ok && !locks[at] && c[i].AtCommit {
			_, out[i], _ = driver.DecideClaim(driver.Record{}, c[i], now, 0)
		} else if !ok {
			old = append(old, at)
		}
	}
	return old, now, rows.Err()
}

// known decides claims on keys that have a record, under a lock. It returns those whose record went away.
func (w *claiming) known(ctx context.Context, part keyed) (again keyed) {
	if len(part.index) == 0 {
		return keyed{}
	}
	mode := rowstore.Wait
	if w.brief {
		mode = rowstore.Skip
	}
	out, err := rowstore.Decide(ctx, w.s.slowPath, len(part.index), mode, func(tx rowstore.Tx, mode rowstore.Mode) ([]driver.Grant, error) {
		out, _, err := rowstore.ClaimTx(tx, mode, nil, rowstore.Some(w.c, part.index)...)
		return out, err
	})
	if n := len(part.index); code(err) == codeDamaged && n > 1 {
		return w.known(ctx, keyed{part.places[:n/2], part.index[:n/2]}).and(w.known(ctx, keyed{part.places[n/2:], part.index[n/2:]}))
	}
	if err != nil {
		w.fail(part, err)
		return keyed{}
	}
	var gone []int
	for at, i := range part.index {
		switch w.out[i] = out[at]; {
		case errors.Is(out[at].Err, rowstore.ErrAbsent):
			gone = append(gone, at)
		case errors.Is(out[at].Err, rowstore.ErrLocked): // or gone
			w.busy(part.only([]int{at}))
		}
	}
	return part.only(gone)
}

// Claims with versions (mode D) are decided by the table under a lock. Those that a record decides without a change, and
// those of new keys, take one round trip as the others do.

// sqlClaimVersions is sqlClaim for calls in which some claims have versions. 1 places 2 nonces 3 leases 4 takeovers
// 5 consumers 6 rests 7 fingerprints 8 deliveries 9 watermarks 10 wait 11 digests. See semel_claim_versions.
const sqlClaimVersions = "SELECT * FROM semel_claim_versions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

// keepArg is the index of keep among the parameters of sqlClaim, and of the watermarks among those of sqlClaimVersions.
const keepArg = 8

// versioned reports that some of the claims have versions.
func versioned(part keyed, c []driver.Claim) bool {
	return slices.ContainsFunc(part.index, func(i int) bool { return c[i].Version != "" })
}

// waits reports a claim that must not make a record, because it waits for the version before it, and its grant without one.
func waits(c *driver.Claim) (driver.Grant, bool) {
	if c.Version == "" || c.After == "" {
		return driver.Grant{}, false
	}
	_, g, changed := driver.DecideClaim(driver.Record{}, *c, time.Time{}, 0)
	return g, !changed
}

// makers parts claims into those that make a record where there is none, and those that wait.
func makers(part keyed, c []driver.Claim) (make, wait keyed) {
	waiting := func(i int) bool { _, yes := waits(&c[i]); return yes }
	if !slices.ContainsFunc(part.index, waiting) {
		return part, keyed{}
	}
	wait, make = part.split(waiting)
	return make, wait
}

// claimQuery is the statement that makes records for new keys. With keep they are COMPLETED at once, which versioned ones
// must not be (see opening.open).
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

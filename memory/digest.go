package memory

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/semel-dev/semel/driver"
)

// digests is the long-term tier: see [driver.LongTerm].
type digests struct {
	keep map[string]time.Duration
	// young are digests of records that are still there, kept those of records that are gone.
	young map[driver.DigestHash]youngDigest
	kept  map[driver.DigestHash]int64 // driver.Digest.Pack
}

type youngDigest struct{ at, until time.Time }

// digestLook bounds how many digests one sweep looks at to find those that are over.
const digestLook = 4096

func newDigests() digests {
	return digests{
		keep: map[string]time.Duration{}, young: map[driver.DigestHash]youngDigest{}, kept: map[driver.DigestHash]int64{},
	}
}

// Remember keeps digests of a consumer's records. See [driver.LongTerm].
func (s *Store) Remember(ctx context.Context, consumer string, keep time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remember %q: %w", consumer, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if keep <= 0 {
		delete(s.digests.keep, consumer)
		return nil
	}
	s.digests.keep[consumer] = max(s.digests.keep[consumer], keep)
	return nil
}

// Remembered looks keys up among those whose records are gone.
func (s *Store) Remembered(ctx context.Context, keys ...driver.Key) ([]driver.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look up digests: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	out := make([]driver.Digest, len(keys))
	now := s.db.clock()
	for i, k := range keys {
		n, ok := s.digests.kept[k.Digest()]
		if d := driver.UnpackDigest(n); ok && d.Until.After(now) {
			out[i] = d
		}
	}
	return out, nil
}

// DigestStats counts the digests. Bytes is the least that they take in memory.
func (s *Store) DigestStats(ctx context.Context) (driver.DigestStats, error) {
	if err := ctx.Err(); err != nil {
		return driver.DigestStats{}, fmt.Errorf("count digests: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	n := int64(len(s.digests.kept))
	return driver.DigestStats{Count: n, Bytes: 24 * n, Keep: maps.Clone(s.digests.keep)}, nil
}

// ScanDigests calls each with digests: with recent those of records that are on their way out. See
// [driver.DigestScanner]. It works on a copy.
func (s *Store) ScanDigests(ctx context.Context, recent bool, each func(h driver.DigestHash, until time.Time) error) error {
	s.db.mu.Lock()
	all := make(map[driver.DigestHash]time.Time, len(s.digests.young))
	if !recent {
		for h, n := range s.digests.kept {
			all[h] = driver.UnpackDigest(n).Until
		}
	}
	for h, y := range s.digests.young {
		all[h] = y.until
	}
	s.db.mu.Unlock()
	for h, until := range all {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("scan digests: %w", err)
		}
		if err := each(h, until); err != nil {
			return err
		}
	}
	return nil
}

// rollOver decides the next step of a record that is past its retention: true = it may go, its digest is there or not
// needed.
func (s *Store) rollOver(rec *record, now time.Time, swept *driver.Swept) bool {
	keep := s.digests.keep[rec.Key.Consumer]
	if keep <= 0 || !rec.Digested() {
		return true
	}
	h := rec.Key.Digest()
	d := driver.DigestOf(&rec.Record, now, keep)
	switch driver.DecideRollOver(s.digests.young[h].at, now) {
	case driver.Announce:
		s.digests.young[h] = youngDigest{at: now, until: d.Until}
		swept.Announced++
		return false
	case driver.Linger:
		return false
	case driver.Depart:
	}
	s.digests.kept[h] = d.Pack()
	delete(s.digests.young, h)
	return true
}

// purge removes digests that are over, digestLook of them looked at, and announcements of records that did not go: they
// were reopened meanwhile.
func (d *digests) purge(now time.Time) {
	looked := 0
	for h, n := range d.kept {
		if looked++; looked > digestLook {
			break
		}
		if !driver.UnpackDigest(n).Until.After(now) {
			delete(d.kept, h)
		}
	}
	looked = 0
	for h, y := range d.young {
		if looked++; looked > digestLook {
			break
		}
		if now.Sub(y.at) > driver.DigestStale {
			delete(d.young, h)
		}
	}
}

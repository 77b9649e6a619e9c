package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the long-term tier (driver.LongTerm). A sweep announces a record's digest in semel_digest_young; when that is
// driver.DigestOverlap old it removes the record, and the trigger semel_record_remembered leaves the digest in
// semel_digest with the same statement, whichever program sends it. The trigger announces what an older program purges,
// too: late, but filters that are filled would never learn of it otherwise.

const (
	// sqlRemember registers a consumer; the longest keep counts. 1 consumer 2 keep in seconds
	sqlRemember = `INSERT INTO semel_remember (consumer, keep) VALUES (?, ?)
  ON CONFLICT (consumer) DO UPDATE SET keep = max(keep, excluded.keep)`
	sqlForget   = "DELETE FROM semel_remember WHERE consumer = ?"
	sqlKeep     = "SELECT consumer, keep FROM semel_remember"
	sqlKeepsAny = "SELECT EXISTS (SELECT 1 FROM semel_remember)"

	// sqlSweepBlockRemembered is sqlSweepBlock with what rollOver reads.
	sqlSweepBlockRemembered = `SELECT r.token, r.state, r.retain_until, r.lease_until, r.consumer, r.hash, r.unknown, coalesce(m.keep, 0),
  coalesce(y.at, 0) FROM semel_record r LEFT JOIN semel_remember m ON m.consumer = r.consumer
  LEFT JOIN semel_digest_young y ON y.hash = r.hash WHERE r.token >= ? AND r.token < ?`

	sqlAnnounce = `INSERT INTO semel_digest_young (hash, at, day) VALUES (?, ?, ?)
  ON CONFLICT (hash) DO UPDATE SET at = excluded.at, day = excluded.day`
	// sqlAnnounced removes the announcement of a record that went.
	sqlAnnounced = "DELETE FROM semel_digest_young WHERE hash = ?"
	// sqlUnannounce removes announcements of records that were reopened. 1 announced before 2 limit
	sqlUnannounce = `DELETE FROM semel_digest_young WHERE hash IN (SELECT hash FROM semel_digest_young WHERE at < ? LIMIT ?)`

	sqlDigestScan = "SELECT hash, meta FROM semel_digest WHERE hash > ? ORDER BY hash LIMIT ?"
	// sqlDigestOver finds digests that are over among the next ones, and the last of those. 1 behind this hash 2 how many are
	// looked at 3 today
	sqlDigestOver   = "SELECT hash, meta & 65535 <= ?3 FROM semel_digest WHERE hash > ?1 ORDER BY hash LIMIT ?2"
	sqlDigestPurge  = "DELETE FROM semel_digest WHERE hash = ? AND meta & 65535 <= ?"
	sqlDigestRecent = "SELECT hash, day FROM semel_digest_young WHERE hash > ? ORDER BY hash LIMIT ?"
)

const (
	// digestLook is how many digests each sweep looks at to find those that are over: all of 20 million in four days of
	// one worker.
	digestLook = 4096
	// digestAsk is how many keys one query looks up.
	digestAsk = 100
)

// Remember keeps digests of a consumer's records. See [driver.LongTerm].
func (s *Store) Remember(ctx context.Context, consumer string, keep time.Duration) error {
	err := s.db.write(ctx, 1, func(t *txn) (err error) {
		if keep <= 0 {
			_, err = t.s.exec(sqlForget, consumer)
			return err
		}
		_, err = t.s.exec(sqlRemember, consumer, int64((keep+time.Second-1)/time.Second))
		return err
	})
	if err != nil {
		return fmt.Errorf("remember %q: %w", consumer, explain(s.db.path, err))
	}
	return nil
}

// Remembered looks keys up among those whose records are gone. See [driver.LongTerm].
func (s *Store) Remembered(ctx context.Context, keys ...driver.Key) ([]driver.Digest, error) {
	out := make([]driver.Digest, len(keys))
	for from := 0; from < len(keys); from += digestAsk {
		part := keys[from:min(from+digestAsk, len(keys))]
		args := make([]any, len(part))
		at := make(map[driver.DigestHash][]int, len(part))
		for i, k := range part {
			h := k.Digest()
			args[i] = h[:]
			at[h] = append(at[h], from+i)
		}
		now := s.db.now()
		err := s.db.read(ctx, "look up digests", func(v []any) error {
			d := driver.UnpackDigest(integer(v[1]))
			if !d.Until.After(now) {
				return nil
			}
			for _, i := range at[digestHash(v[0])] {
				out[i] = d
			}
			return nil
		}, "SELECT hash, meta FROM semel_digest WHERE hash IN (?"+strings.Repeat(", ?", len(part)-1)+")", args...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// digestHash reads a hash; one of another length is a damaged file's, and nobody's.
func digestHash(v any) (h driver.DigestHash) {
	b, _ := v.([]byte)
	copy(h[:], b)
	return h
}

// DigestStats counts the digests, which reads all pages that hold them. See [driver.LongTerm].
func (s *Store) DigestStats(ctx context.Context) (driver.DigestStats, error) {
	st := driver.DigestStats{Keep: map[string]time.Duration{}}
	err := s.db.read(ctx, "count digests", func(v []any) error {
		st.Keep[text(v[0])] = time.Duration(integer(v[1])) * time.Second
		return nil
	}, sqlKeep)
	if err != nil {
		return st, err
	}
	err = s.db.read(ctx, "count digests", func(v []any) error {
		st.Count = integer(v[0])
		return nil
	}, "SELECT count(*) FROM semel_digest")
	if err == nil {
		// Not every build of SQLite has dbstat: then the size is not known.
		_ = s.db.read(ctx, "measure digests", func(v []any) error {
			st.Bytes = integer(v[0])
			return nil
		}, "SELECT pgsize FROM dbstat WHERE name = 'semel_digest' AND aggregate = 1")
	}
	return st, err
}

// ScanDigests reads announcements, and without recent the digests behind them. See [driver.DigestScanner].
func (s *Store) ScanDigests(ctx context.Context, recent bool, each func(h driver.DigestHash, until time.Time) error) error {
	// The announcements first: what departs meanwhile is among the digests then.
	if err := s.scanDigests(ctx, sqlDigestRecent, each); err != nil || recent {
		return err
	}
	return s.scanDigests(ctx, sqlDigestScan, each)
}

// scanDigests reads pages in the order of the hashes, so that no read lasts.
func (s *Store) scanDigests(ctx context.Context, query string, each func(h driver.DigestHash, until time.Time) error) error {
	type row struct {
		h    driver.DigestHash
		meta int64
	}
	page := make([]row, 0, digestLook)
	for after := []byte{}; ; after = page[len(page)-1].h[:] {
		page = page[:0]
		err := s.db.read(ctx, "scan digests", func(v []any) error {
			page = append(page, row{digestHash(v[0]), integer(v[1])})
			return nil
		}, query, after, digestLook)
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := each(r.h, driver.UnpackDigest(r.meta).Until); err != nil {
				return err
			}
		}
		if len(page) < digestLook {
			return nil
		}
	}
}

// announcement is a row of semel_digest_young.
type announcement struct {
	hash    []byte
	at, day int64
}

// remembers tells whether any consumer's records leave digests.
func (t *txn) remembers() (bool, error) {
	var any int64
	_, err := t.s.one([]*int64{&any}, sqlKeepsAny)
	return any != 0, err
}

// rollOver decides the next step of a record that is past its retention. v is what sqlSweepBlockRemembered adds.
func (t *txn) rollOver(r *driver.Record, v []sqldriver.Value) (announcement, driver.RollOver) {
	r.Unknown = integer(v[1]) != 0
	keep := time.Duration(integer(v[2])) * time.Second
	if keep == 0 || !r.Digested() {
		return announcement{}, driver.Depart
	}
	a := announcement{at: integer(v[3])}
	a.hash, _ = v[0].([]byte)
	step := driver.DecideRollOver(fromMicro(a.at), t.now)
	if step == driver.Announce {
		a.at, a.day = t.micros(), driver.DigestDay(t.now.Add(keep))
	}
	return a, step
}

// announce writes announcements.
func (w *sweep) announce(list []announcement) error {
	for _, a := range list {
		if _, err := w.t.s.exec(sqlAnnounce, a.hash, a.at, a.day); err != nil {
			return err
		}
	}
	w.sum.Announced += len(list)
	return nil
}

// purgeDigests removes digests that are over, of the next ones in the order of their hashes, and announcements that are
// nobody's. It writes only where there is something to remove.
func (s *Store) purgeDigests(ctx context.Context) error {
	now := s.db.now()
	today := driver.DigestDay(now.Add(-24*time.Hour + time.Second)) // the last day that is over
	var over [][]byte
	var last []byte
	seen := 0
	err := s.db.read(ctx, "look for digests that are over", func(v []any) error {
		seen++
		last, _ = v[0].([]byte)
		if integer(v[1]) != 0 {
			over = append(over, last)
		}
		return nil
	}, sqlDigestOver, s.db.digests, digestLook, today)
	if err != nil {
		return err
	}
	if s.db.digests = last; seen < digestLook {
		s.db.digests = []byte{}
	}
	stale := int64(0)
	err = s.db.read(ctx, "look for announcements that are nobody's", func(v []any) error { stale = integer(v[0]); return nil },
		"SELECT EXISTS (SELECT 1 FROM semel_digest_young WHERE at < ?)", micro(now.Add(-driver.DigestStale)))
	if err != nil || stale == 0 && len(over) == 0 {
		return err
	}
	return s.db.write(ctx, len(over)+1, func(t *txn) error {
		for _, h := range over {
			if _, err := t.s.exec(sqlDigestPurge, h, today); err != nil {
				return err
			}
		}
		_, err := t.s.exec(sqlUnannounce, micro(t.now.Add(-driver.DigestStale)), int64(digestLook))
		return err
	})
}

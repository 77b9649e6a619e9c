// Package limits measures what the machine and the servers can do at all, with the least that has to be durable: nothing
// here deduplicates effects.
package limits

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// All are the limits, in the order of the report.
func All() []harness.Measure {
	return []harness.Measure{
		fdatasync(),
		commits(1, 2500), commits(8, 12000), commits(32, 20000),
		unnest(10, 40000), unnest(100, 100000), unnest(1000, 150000),
		twoCommits(256, 12000), twoCommits(32, 12000), twoCommits(1, 1500),
		sqliteInserts(1, 3000), sqliteInserts(100, 60000), sqliteInserts(1000, 60000),
		redisSet(100000),
	}
}

// fdatasync makes one page after the other of a file durable.
func fdatasync() harness.Measure {
	return harness.Measure{
		Name: "fdatasync", Title: "fdatasync of an 8 KiB page, one after the other", Kind: harness.Limit, Unit: "syncs",
		N: 4000, Settings: "one file on the servers' disk, preallocated, written in place",
		Run: func(_ context.Context, e *harness.Env) (s harness.Sample, err error) {
			f, err := os.Create(filepath.Join(e.Dir, "file"))
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			const page, pages = 8192, 2048 // a segment of 16 MiB, as PostgreSQL's log has
			if _, err := f.Write(make([]byte, page*pages)); err != nil {
				return s, err
			}
			if err := f.Sync(); err != nil {
				return s, err
			}
			buf := make([]byte, page)
			stop := e.Watch()
			for i := range e.N {
				buf[0] = byte(i)
				if _, err := f.WriteAt(buf, int64(i%pages*page)); err != nil {
					return s, err
				}
				if err := syscall.Fdatasync(int(f.Fd())); err != nil {
					return s, fmt.Errorf("fdatasync: %w", err)
				}
			}
			return harness.Sample{Done: e.N, Usage: stop()}, nil
		},
	}
}

// key is a new key: 16 bytes that come in no order.
func key() (k [16]byte) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// text is a key as producers write it.
func text(k [16]byte) string {
	h := hex.EncodeToString(k[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

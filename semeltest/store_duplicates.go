package semeltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// duplicateCases test the log of duplicates that a driver.DuplicateLog keeps.
func duplicateCases() []suiteCase[StoreSetup] {
	with := func(f func(b *duplicateBench)) func(testing.TB, StoreSetup) {
		return func(t testing.TB, s StoreSetup) {
			log, ok := driver.As[driver.DuplicateLog](s.Store)
			if !ok {
				t.Log("left out: the store is no driver.DuplicateLog")
				return
			}
			b := &duplicateBench{bench: newBench(t, s), log: log, at: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)}
			f(b)
			b.bad.report(t)
		}
	}
	return []suiteCase[StoreSetup]{
		{"duplicates, what was added", with(testDuplicatesKept)},
		{"duplicates, the newest and the count", with(testDuplicatesBounded)},
		{"duplicates go with their record", with(testDuplicatesPurged)},
	}
}

type duplicateBench struct {
	*bench
	log driver.DuplicateLog
	at  time.Time
}

// completed makes the record of a key.
func (b *duplicateBench) completed(k driver.Key, kept time.Duration) {
	b.t.Helper()
	g := mustClaim(b.t, b.Store, k)[0]
	mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: kept})
}

// dup makes a unique duplicate.
func (b *duplicateBench) dup(k driver.Key, id string) driver.Duplicate {
	b.at = b.at.Add(1234567 * time.Microsecond)
	return driver.Duplicate{
		Key: k, MessageID: id, At: b.at, Worker: "w-" + id, Queue: "q-" + id, Count: len(id), Decision: "replayed",
		Cause: "redelivery",
	}
}

func (b *duplicateBench) add(ds ...driver.Duplicate) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if err := b.log.AddDuplicates(ctx, ds...); err != nil {
		b.t.Fatalf("add %d duplicates: %v", len(ds), err)
	}
}

// check compares the log of a key with the expected one.
func (b *duplicateBench) check(what string, k driver.Key, total int64, want ...driver.Duplicate) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	n, got, err := b.log.Duplicates(ctx, k)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	if n != total || len(got) != len(want) {
		b.bad.add("%s: key %q has %d duplicates in all and %d of the newest, wanted %d and %d", what, k.Raw, n, len(got), total, len(want))
		return
	}
	for i := range got {
		if g := got[i]; !g.At.Equal(want[i].At) || withoutTime(g) != withoutTime(want[i]) {
			b.bad.add("%s: duplicate %d of key %q is %+v, wanted %+v", what, i, k.Raw, g, want[i])
		}
	}
}

func withoutTime(d driver.Duplicate) driver.Duplicate {
	d.At = time.Time{}
	return d
}

// testDuplicatesKept adds duplicates of several keys at once.
func testDuplicatesKept(b *duplicateBench) {
	ks := []driver.Key{{Raw: "copy"}, {Consumer: "c", Raw: "copy"}, {Consumer: "c", Tenant: "t", Raw: "copy"}, {Raw: "k\x00\xffö'; --"}}
	var all []driver.Duplicate
	for i, k := range ks {
		b.completed(k, keep)
		all = append(all, b.dup(k, fmt.Sprintf("m%d\x00\xffö", i)))
	}
	last := b.dup(ks[0], "")
	last.Decision, last.Cause, last.Count = "replayed_other_payload", "producer_duplicate", 0
	b.add()
	b.add(append(all, last, b.dup(driver.Key{Raw: "no record"}, "m"))...)
	b.check("two of one key", ks[0], 2, all[0], last)
	for i := 1; i < len(ks); i++ {
		b.check("of another key", ks[i], 1, all[i])
	}
	b.check("of a key without a record", driver.Key{Raw: "no record"}, 0)
}

// testDuplicatesBounded adds more than are kept, in several calls and in one.
func testDuplicatesBounded(b *duplicateBench) {
	k, other := driver.Key{Raw: "many"}, driver.Key{Raw: "one"}
	b.completed(k, keep)
	b.completed(other, keep)
	alone := b.dup(other, "alone")
	b.add(alone)
	var all []driver.Duplicate
	for _, n := range []int{1, driver.MaxDuplicates - 1, 1, 3*driver.MaxDuplicates + 1} {
		var batch []driver.Duplicate
		for range n {
			batch = append(batch, b.dup(k, fmt.Sprintf("m%d", len(all)+len(batch))))
		}
		b.add(batch...)
		all = append(all, batch...)
		b.check(fmt.Sprintf("after %d", len(all)), k, int64(len(all)), all[max(len(all)-driver.MaxDuplicates, 0):]...)
	}
	b.check("of the other key", other, 1, alone)
}

// testDuplicatesPurged purges a record: its duplicates go, also from the count, and those of others stay.
func testDuplicatesPurged(b *duplicateBench) {
	sw, ok := driver.As[driver.Sweeper](b.Store)
	if !ok {
		b.t.Log("left out: the store has no driver.Sweeper")
		return
	}
	gone, stays := driver.Key{Raw: "gone"}, driver.Key{Raw: "stays"}
	b.completed(gone, short)
	b.completed(stays, keep)
	kept := b.dup(stays, "kept")
	b.add(b.dup(gone, "1"), b.dup(gone, "2"), kept)
	b.wait()
	if got, _, err := sw.Sweep(b.t.Context(), 0, 100); err != nil || got.Purged != 1 {
		b.t.Fatalf("sweep returned %+v, %v; wanted one record purged", got, err)
	}
	b.check("after the purge", gone, 0)
	b.check("of another key", stays, 1, kept)
	b.add(b.dup(gone, "late"))
	b.check("added after the purge", gone, 0)
	b.completed(gone, keep)
	b.check("of the key's next record", gone, 0)
}

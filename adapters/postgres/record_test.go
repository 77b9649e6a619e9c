package postgres

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// TestRecordsAreStoredWhole writes records whose columns have the values for which NULL stands, and others.
func TestRecordsAreStoredWhole(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	at := func(micro int64) time.Time { return time.UnixMicro(1_800_000_000_000_000 + micro) }
	keys := []driver.Key{
		{Consumer: "test", Raw: "k"}, {Consumer: "test", Tenant: strings.Repeat("t", 130), Raw: "k"},
		{Consumer: "test", Tenant: "t", Raw: strings.Repeat("long", 100)},
	}
	plain := driver.Record{
		State: driver.InProgress, Generation: 1, Attempt: 1, Token: 7, Nonce: driver.Nonce{1}, CreatedAt: at(0), UpdatedAt: at(5),
		Lease: time.Second, LeaseUntil: at(1_000_005),
	}
	for name, change := range map[string]func(r *driver.Record){
		"claimed":                func(*driver.Record) {},
		"no lease":               func(r *driver.Record) { r.Lease, r.LeaseUntil = 0, time.Time{} },
		"no end of the lease":    func(r *driver.Record) { r.LeaseUntil = time.Time{} },
		"an end without a lease": func(r *driver.Record) { r.Lease = 0 },
		"a shortened lease":      func(r *driver.Record) { r.LeaseUntil = at(3) },
		"a lease of a month":     func(r *driver.Record) { r.Lease, r.LeaseUntil = 720*time.Hour, at(5).Add(720*time.Hour) },
		"completed": func(r *driver.Record) {
			r.State, r.CompletedAt, r.RetainUntil, r.Result = driver.Completed, r.UpdatedAt, at(9), []byte("done")
		},
		"completed before":   func(r *driver.Record) { r.State, r.CompletedAt, r.RetainUntil = driver.Completed, at(2), at(9) },
		"failed, never done": func(r *driver.Record) { r.State, r.RetainUntil, r.Reason = driver.FailedState, at(9), "no" },
		"failed, done once":  func(r *driver.Record) { r.State, r.CompletedAt, r.RetainUntil = driver.FailedState, r.UpdatedAt, at(9) },
		"released": func(r *driver.Record) {
			r.State, r.Attempt, r.Spent, r.RetryAt, r.RetainUntil = driver.Released, 0, true, at(6), at(9)
		},
		"counted": func(r *driver.Record) {
			r.Generation, r.Epoch, r.Beat, r.Attempt, r.Failures, r.Takeovers, r.Uncertainty = 2, 3, 4, 5, 6, 7, 8
		},
		"flagged": func(r *driver.Record) {
			r.Takeover, r.Unknown, r.Disposed, r.Fingerprint, r.BodyDigest = driver.Once, true, true, "f", 1<<63
		},
		"its own delivery":    func(r *driver.Record) { r.Deliveries = []string{r.Key.Raw} },
		"another's delivery":  func(r *driver.Record) { r.Deliveries = []string{"other"} },
		"several deliveries":  func(r *driver.Record) { r.Deliveries = []string{"other", r.Key.Raw, "third"} },
		"with versions":       func(r *driver.Record) { r.Watermark.Running = driver.TextVersion("2") },
		"expired":             func(r *driver.Record) { *r = expired(*r); r.Ended = driver.Completed },
		"expired, discarded":  func(r *driver.Record) { *r = expired(*r); r.Ended, r.Disposed = driver.FailedState, true },
		"expired with doubts": func(r *driver.Record) { *r = expired(*r); r.Ended, r.Unknown, r.Uncertainty = driver.Released, true, 2 },
	} {
		for _, k := range keys {
			k.Consumer = name
			want := plain
			want.Key = k
			change(&want)
			mustClaim(t, s, claimOf(k, long))
			err := rows{db}.Atomic(t.Context(), 1, func(tx rowstore.Tx) error {
				locked, err := tx.Lock([]rowstore.ID{{Key: k, Place: rowstore.PlaceOf(&k)}}, rowstore.Wait)
				if err != nil {
					return err
				}
				want.CreatedAt = locked[0].Record.CreatedAt // which never changes
				return tx.Put(&locked[0], &want)
			})
			if err != nil {
				t.Fatal(err)
			}
			got, found, err := s.Record(t.Context(), k)
			if err != nil || !found || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: read %v\n%+v, wrote\n%+v", name, err, got, want)
			}
		}
	}
}

// expired is a record after its retention, see driver.DecideSweep.
func expired(r driver.Record) driver.Record {
	return driver.Record{Key: r.Key, State: driver.Expired, Generation: 1, Token: r.Token, UpdatedAt: r.UpdatedAt, RetainUntil: r.LeaseUntil}
}

// TestRecordsTakeLittleRoom: the ends of first attempts have no columns that say nothing.
func TestRecordsTakeLittleRoom(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	for _, n := range []int{1, 2} { // alone, and together
		cs := claimsOf(testKeys("order-%010d", n), long)
		for i := range cs {
			cs[i].Key.Consumer, cs[i].DeliveryID, cs[i].BodyDigest = "orders", cs[i].Key.Raw, 7
		}
		fs := make([]driver.Finish, n)
		for i, g := range mustClaim(t, s, cs...) {
			fs[i] = completion(g)
		}
		if _, err := s.Finish(t.Context(), fs...); err != nil {
			t.Fatal(err)
		}
		var size int
		if err := db.pool.QueryRow(t.Context(), "SELECT max(pg_column_size(r.*)) FROM semel_record r").Scan(&size); err != nil {
			t.Fatal(err)
		}
		if size > 128 {
			t.Errorf("a completed record takes %d bytes, wanted 128 at most", size)
		}
		execSQL(t, db, "DELETE FROM semel_record")
	}
}

// TestRecordsStayInTheOrderOfTheirKeys: neighbours are neighbours in the index, whatever their bytes.
func TestRecordsStayInTheOrderOfTheirKeys(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ks := []driver.Key{{Raw: "\x00"}, {Raw: "\x7f"}, {Raw: "\x80"}, {Raw: "a"}, {Raw: "ab"}, {Tenant: "t", Raw: "a"}, {Tenant: "t", Raw: "\xff"}}
	mustClaim(t, s, claimsOf(ks, long)...)
	rows, err := db.pool.Query(context.WithoutCancel(t.Context()), "SELECT place FROM semel_record ORDER BY place")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sorted := sortKeys(len(ks), func(i int) *driver.Key { return &ks[i] })
	for at := 0; rows.Next(); at++ {
		var place []byte
		if err := rows.Scan(&place); err != nil || string(place) != string(sorted.places[at]) {
			t.Errorf("record %d is at %x, the program locks %x then: %v", at, place, sorted.places[at], err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

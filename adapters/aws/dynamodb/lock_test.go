package dynamodb

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/semeltest"
)

// TestS2_15_LockSuite runs locks on two stores, as in two processes, in real time.
func TestS2_15_LockSuite(t *testing.T) {
	semeltest.RunLock(t, func(t testing.TB) semeltest.LockSetup {
		r := newFixtureAt(t, awstest.System(), Options{MaxClockSkew: 50 * time.Millisecond})
		return semeltest.LockSetup{Store: r.Store, Other: r.again(t, nil)}
	})
}

// TestS2_15_DistributedLock does what distributed_lock(lock_key, ttl=300) was meant to do: the lock of a dead holder is
// taken over when it ends, a non-owner's release changes nothing, an error inside is returned unchanged, and the fencing
// attribute of the guarded item may be called "owner".
func TestS2_15_DistributedLock(t *testing.T) {
	r := newFixture(t, Options{})
	createTableOf(t, r.client, "reports", "id")
	const ttl = 300 * time.Second
	locker, err := lock.New(r.Store, lock.Options{Lease: ttl})
	if err != nil {
		t.Fatal(err)
	}
	other, err := lock.New(r.again(t, nil), lock.Options{Lease: ttl})
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("the report failed")
	if err := locker.Do(t.Context(), "report", func(context.Context, *lock.Held) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the error inside was returned as %v", err)
	}
	dead, err := locker.TryAcquire(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(ttl + r.o.skew() - time.Second)
	if _, err := other.TryAcquire(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a lease whose end is less than the clocks' difference ago: %v, wanted ErrHeld", err)
	}
	r.clock.Advance(2 * time.Second)
	next, err := other.TryAcquire(t.Context(), "report")
	if err != nil {
		t.Fatalf("the lock of a dead holder: %v", err)
	}
	defer func() { _ = next.Unlock(context.WithoutCancel(t.Context())) }()
	if err := dead.Unlock(t.Context()); err != nil {
		t.Errorf("a non-owner's release is no error: %v", err)
	}
	if _, err := locker.TryAcquire(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after a non-owner's release: %v, wanted ErrHeld", err)
	}
	write := func(h *lock.Held) error {
		f := Guard("owner", h.Token())
		in := &awsdynamodb.UpdateItemInput{TableName: aws.String("reports"), Key: attrs{"id": text("today")}}
		f.Update(in)
		_, err := r.client.UpdateItem(t.Context(), in)
		return stale(f, err)
	}
	if err := write(next); err != nil {
		t.Errorf("the holder's write: %v", err)
	}
	if err := write(dead); !errors.Is(err, errStale) {
		t.Errorf("the dead holder's write: %v, wanted stale", err)
	}
}

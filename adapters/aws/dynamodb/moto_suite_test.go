package dynamodb

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	motoserver "github.com/semel-dev/semel/adapters/aws/awstest/moto"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// onMoto is a store with tables of its own on a moto_server.
func onMoto(t testing.TB, client *awsdynamodb.Client, name string, o Options) *fixture {
	t.Helper()
	clock := awstest.Frozen(midday)
	r := &fixture{client: client, clock: clock, ledger: "ledger-" + name, o: o}
	r.o.Clock = clock.Now
	r.o.SweepEvery, r.o.Parallel, r.o.CallTimeout = -1, 4, 20*time.Second // it takes one request at a time, and its time
	r.makeTables(t, "records-"+name, &r.o)
	r.Store = r.open(t, client, "records-"+name, r.o)
	return r
}

// TestStoreSuiteMoto runs the suite on another implementation of the API. moto ignores ClientRequestToken, has neither
// conflicts nor throttling, and deletes nothing by time to live: the fake's tests cover these. moto is slow, so the suite
// runs only on request, and compares a part of the cells (SEMEL_MOTO_SUITE=all: all, which takes hours). TestMoto is the
// short form.
func TestStoreSuiteMoto(t *testing.T) {
	asked := os.Getenv("SEMEL_MOTO_SUITE")
	if asked == "" {
		t.Skip("the whole suite on moto_server takes long; SEMEL_MOTO_SUITE=1 runs it")
	}
	client := moto(t)
	var n atomic.Int64
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		if strings.Contains(t.Name(), "FM13") {
			t.Skip("moto's UpdateItem shows others an item of keys alone before it is carried out")
		}
		s := onMoto(t, client, fmt.Sprint(n.Add(1)), Options{}).setup()
		if asked != "all" {
			s.Sample = 97
		}
		return s
	})
}

// TestMoto runs messages from claim to completion on another implementation of the API: conditions, returned items,
// transactions and their reasons, batches of reads. Every write is sent twice.
func TestMoto(t *testing.T) {
	client := moto(t)
	for name, o := range map[string]Options{"own": {}, "tracker": tracker(), "gate": demo("orders")} {
		t.Run(name, func(t *testing.T) {
			r := onMoto(t, client, name, o)
			twiceSent := awsdynamodb.New(client.Options(), func(o *awsdynamodb.Options) {
				o.HTTPClient = &http.Client{Transport: twice{http.DefaultTransport}}
			})
			r.Store = r.open(t, twiceSent, "records-"+name, r.o)
			motoLives(t, r)
		})
	}
}

func motoLives(t *testing.T, r *fixture) {
	t.Helper()
	var cs []driver.Claim
	for i := range 120 {
		cs = append(cs, claimOf(fmt.Sprint("m", i)))
	}
	gs, err := r.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	var works []driver.Work
	for i, g := range gs {
		if g.Err != nil || g.Verdict != driver.Acquired || g.Attempt != 1 {
			t.Fatalf("claim returned %+v", g)
		}
		if i < 30 {
			works = append(works, r.withEffect(g))
		}
	}
	bad := r.withEffect(gs[30])
	ledgerOf(r.client, r.ledger).Refuse(bad.Effects)
	if o, err := r.Commit(t.Context(), bad); err == nil {
		t.Errorf("refused effects returned %v", o)
	}
	other := r.open(t, r.client, r.table, r.o) // knows no rows: it reads them
	for _, s := range []*Store{r.Store, r.Store, other} {
		o, err := s.Commit(t.Context(), works...)
		if err != nil || o[0] != driver.Applied || o[29] != driver.Applied {
			t.Fatalf("commit returned %v, %v", o, err)
		}
	}
	for i := range 31 {
		if n, want := r.effects(t, fmt.Sprint("m", i)), min(1, 30-i/30*30); n != want {
			t.Errorf("key m%d has %d effects, wanted %d", i, n, want)
		}
	}
	var rest []driver.Finish
	for _, g := range gs[30:] {
		rest = append(rest, completion(g))
	}
	for _, s := range []*Store{other, r.Store} {
		if o, err := s.Finish(t.Context(), rest...); err != nil || o[0] != driver.Applied || o[89] != driver.Applied {
			t.Fatalf("finish returned %v, %v", o, err)
		}
	}
	claimOne(t, other, claimOf("m7"), driver.Replay)
	g := claimOne(t, r.Store, claimOf("held"), driver.Acquired)
	claimOne(t, other, claimOf("held"), driver.Busy)
	r.clock.Advance(2 * 60e9)
	next := claimOne(t, other, claimOf("held"), driver.Acquired)
	if o, err := r.Commit(t.Context(), r.withEffect(g)); err != nil || o[0] != driver.Lost || r.effects(t, "held") != 0 {
		t.Errorf("the fenced commit returned %v, %v", o, err)
	}
	finishOne(t, other, completion(next), driver.Applied)
}

// moto is a client of a moto_server that the test starts. Without moto_server the test is left out. Every run compares the fake with
// moto (awstest/fakedynamodb), and tests the store on the fake.
func moto(t *testing.T) *awsdynamodb.Client {
	t.Helper()
	if !semeltest.Nightly() {
		t.Skip("make nightly runs the store on moto_server too")
	}
	cfg := motoserver.Config(motoserver.Start(t))
	cfg.RetryMaxAttempts = 0 // the SDK's own
	return awsdynamodb.NewFromConfig(cfg)
}

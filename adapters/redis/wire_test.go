package redis

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestFM32_LostResponses: the server carries a call out, and its response is lost. The outcome is unknown; the same write with
// the same nonce returns what the first one did.
func TestFM32_LostResponses(t *testing.T) {
	url := server.Shared(t, "redis")
	p := proxy(t, strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0"))
	c := goredis.NewClient(&goredis.Options{Addr: p.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	s := openFor(t, c, Options{})
	if !try(t.Context(), s, keyOf(0)) { // the scripts are loaded
		t.Fatal("the key was not completed")
	}
	claims := make([]driver.Claim, 3)
	for i := range claims {
		claims[i] = driver.Claim{Key: keyOf(i + 1), Nonce: nonce(), Lease: time.Hour}
	}
	lose := func() { p.LoseResponses(server.ToServer, "evalsha", 1) }
	lose()
	if g, err := s.Claim(t.Context(), claims...); err == nil {
		t.Fatalf("a claim whose response is lost returns %v", g)
	} else if errors.Is(err, driver.ErrNotCommitted) || errors.Is(err, driver.ErrOutage) {
		t.Errorf("it may have been carried out, and the error says that it was not: %v", err)
	}
	g, err := s.Claim(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	finishes := make([]driver.Finish, len(g))
	for i := range g {
		if g[i].Verdict != driver.Acquired || g[i].Attempt != 1 || g[i].Hold.Nonce != claims[i].Nonce {
			t.Errorf("the same claim again is %+v", g[i])
		}
		finishes[i] = driver.Finish{Hold: g[i].Hold, Final: driver.Complete, Keep: time.Hour}
	}
	finishes[1].Final, finishes[1].Ran = driver.Release, driver.NotApplied
	lose()
	if o, err := s.Finish(t.Context(), finishes...); err == nil {
		t.Fatalf("a finish whose response is lost returns %v", o)
	}
	o, err := s.Finish(t.Context(), finishes...)
	if err != nil || o[0] != driver.Applied || o[1] != driver.Applied || o[2] != driver.Applied {
		t.Errorf("the same finish again is %v, %v", o, err)
	}
	if p.Lost() != 2 {
		t.Errorf("%d responses were lost, not 2: the test shows nothing", p.Lost())
	}
}

// TestFM35_CutConnections cuts all connections in the middle of batches again and again; every key completes once.
func TestFM35_CutConnections(t *testing.T) {
	url := server.Shared(t, "redis")
	p := proxy(t, strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0"))
	s := openFor(t, connect(t, "redis://"+p.Addr()+"/0"), Options{Shards: 4})
	rounds := 5
	if semeltest.Nightly() {
		rounds = 100
	}
	for round := range rounds {
		claims := make([]driver.Claim, 600)
		for i := range claims {
			claims[i] = driver.Claim{Key: keyOf(round*1000 + i), Nonce: nonce(), Lease: time.Hour}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Cut()
		}()
		var holds []driver.Hold
		for _, c := range claims {
			var g []driver.Grant
			for err := errors.New("not yet"); err != nil; {
				if g, err = s.Claim(t.Context(), c); err == nil {
					err = g[0].Err
				}
			}
			if g[0].Verdict != driver.Acquired || g[0].Attempt != 1 {
				t.Fatalf("the claim of key %q is %+v", c.Key.Raw, g[0])
			}
			holds = append(holds, g[0].Hold)
			if len(holds) == 300 {
				p.Cut()
			}
		}
		<-done
		fs := make([]driver.Finish, len(holds))
		for i, h := range holds {
			fs[i] = driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour}
		}
		go p.Cut()
		for left := true; left; {
			o, err := s.Finish(t.Context(), fs...)
			left = err != nil
			for i := range o {
				if o[i] == driver.Lost {
					t.Fatalf("the completion of key %q is lost", fs[i].Hold.Key.Raw)
				}
				left = left || o[i] != driver.Applied
			}
		}
	}
}

// TestScriptsAreFlushed: a server that forgot the scripts gets them again.
func TestScriptsAreFlushed(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"appendonly": "no"})
	s := openFor(t, connect(t, srv.URL()), Options{Shards: 2})
	for i := range 20 {
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		h := verdict(t, s, keyOf(i)).Hold
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		o, err := s.Finish(t.Context(), driver.Finish{Hold: h, Final: driver.Release, Ran: driver.NotApplied, Keep: time.Hour})
		if err != nil || o[0] != driver.Applied {
			t.Fatalf("finish: %v, %v", o, err)
		}
	}
}

// TestValuesOfAnotherType: what somebody else keeps under the name of a record fails one key, and stays as it is; under the
// names of the index or the floor it fails the call, and no record is written.
func TestValuesOfAnotherType(t *testing.T) {
	s := openFor(t, shared(t), Options{})
	taken := keyOf(1)
	name := s.name("r", newItem(&taken))
	if err := s.client.RPush(t.Context(), name, "somebody's").Err(); err != nil {
		t.Fatal(err)
	}
	var claims []driver.Claim
	for i := range 3 {
		claims = append(claims, driver.Claim{Key: keyOf(i), Nonce: nonce(), Lease: time.Hour})
	}
	g, err := s.Claim(t.Context(), claims...)
	if err != nil || g[0].Verdict != driver.Acquired || g[2].Verdict != driver.Acquired {
		t.Fatalf("the keys beside it: %+v, %v", g, err)
	}
	if !errors.Is(g[1].Err, driver.ErrUnreadable) || !strings.Contains(g[1].Err.Error(), "WRONGTYPE") {
		t.Errorf("the key whose name is taken: %v", g[1].Err)
	}
	h := driver.Hold{Key: taken, Generation: 1, Token: 1, Nonce: nonce()}
	if o, err := s.Finish(t.Context(), driver.Finish{Hold: h, Final: driver.Complete}); err != nil || o[0] != driver.Unknown {
		t.Errorf("a finish of it returns %v, %v", o, err)
	}
	if v, err := s.client.LRange(t.Context(), name, 0, -1).Result(); err != nil || len(v) != 1 {
		t.Errorf("somebody's value is %v, %v", v, err)
	}

	for _, part := range []string{"index", "floor"} {
		s := openFor(t, shared(t), Options{})
		if err := s.client.RPush(t.Context(), s.slot(0)+part, "somebody's").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(t.Context(), claims[0]); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("with a list in place of the %s a claim returns %v", part, err)
		}
		if n := s.client.Exists(t.Context(), s.name("r", newItem(&claims[0].Key))).Val(); n != 0 {
			t.Errorf("with a list in place of the %s a record was written", part)
		}
	}
}

// TestTokensAreExact: numbers of Lua are doubles. Tokens up to 2⁵³ are exact, and there are none beyond.
func TestTokensAreExact(t *testing.T) {
	s := openFor(t, shared(t), Options{})
	const most = uint64(1) << 53
	floor := s.slot(0) + "floor"
	for _, below := range []uint64{3, 1000003, 2} {
		if err := s.client.Set(t.Context(), floor, strconv.FormatUint(most-below, 10), 0).Err(); err != nil {
			t.Fatal(err)
		}
		k := keyOf(int(below)) //nolint:gosec // small
		h := verdict(t, s, k).Hold
		r, ok, err := s.Record(t.Context(), k)
		if err != nil || !ok || r.Token != most-below+1 || h.Token != r.Token {
			t.Errorf("after floor 2⁵³-%d the token is 2⁵³-%d, the record has 2⁵³-%d (%v)", below, most-h.Token, most-r.Token, err)
		}
		if o, err := s.Finish(t.Context(), driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour}); err != nil || o[0] != driver.Applied {
			t.Errorf("its completion: %v, %v", o, err)
		}
	}
	_, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(-1), Nonce: nonce(), Lease: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("behind the last token a claim returns %v", err)
	}
}

// TestTimesAreExact: microseconds far from now are read as they were written, also where the script adds them.
func TestTimesAreExact(t *testing.T) {
	s := openFor(t, shared(t), Options{clock: testClock})
	c := newClock(t, s)
	c.advance(t, 987654*time.Microsecond)
	for i, lease := range []time.Duration{time.Microsecond, 123456789 * time.Microsecond, 400 * 24 * time.Hour, math.MaxInt32 * time.Second} {
		k := keyOf(i)
		g, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: nonce(), Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := s.Record(t.Context(), k); err != nil || !r.LeaseUntil.Equal(c.at.Add(lease)) || r.Lease != lease || !r.CreatedAt.Equal(c.at) {
			t.Errorf("claimed at %v for %v: %v until %v, %v", c.at, lease, r.Lease, r.LeaseUntil, err)
		}
		if _, err := s.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: lease}); err != nil {
			t.Fatal(err)
		}
		if r, _, err := s.Record(t.Context(), k); err != nil || !r.RetainUntil.Equal(c.at.Add(lease)) {
			t.Errorf("kept for %v from %v: until %v, %v", lease, c.at, r.RetainUntil, err)
		}
	}
}

// TestReplicaIsNoStore: a replica is refused when records are opened on it; one that becomes a replica is an outage.
func TestReplicaIsNoStore(t *testing.T) {
	f := newFailover(t)
	if _, err := Open(t.Context(), connect(t, f.replica.URL()), Options{Prefix: "fresh"}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("Open on a replica returns %v", err)
	}
	s := openFor(t, f.client, Options{})
	if err := s.CreateQueue(t.Context(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	q, err := s.Queue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	f.door.Forward(f.replica.Addr())
	f.door.Cut()
	_, err = s.Claim(t.Context(), driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour})
	if !errors.Is(err, driver.ErrOutage) {
		t.Errorf("a claim on a replica returns %v", err)
	}
	if _, err := q.Receive(t.Context(), 1); !errors.Is(err, driver.ErrOutage) {
		t.Errorf("a receive on a replica returns %v", err)
	}
	f.door.Forward(f.primary.Addr())
	f.door.Cut()
}

// TestShardsAreAgreed: processes with different numbers of shards would not see each other's records.
func TestShardsAreAgreed(t *testing.T) {
	c := shared(t)
	s := openFor(t, c, Options{Shards: 3})
	if again, err := Open(t.Context(), c, Options{Prefix: s.prefix}); err != nil || again.shards != 3 {
		t.Errorf("opened without a number: %v", err)
	}
	if _, err := Open(t.Context(), c, Options{Prefix: s.prefix, Shards: 4}); err == nil || !strings.Contains(err.Error(), "have 3 shards, Options.Shards is 4") {
		t.Errorf("opened with another number: %v", err)
	}
	for _, o := range []Options{{Prefix: "a{b"}, {Shards: -1}, {Shards: 2000}} {
		if _, err := Open(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), "Options.") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(t.Context(), nil, Options{}); err == nil {
		t.Error("opened without a client")
	}
	if err := c.Set(t.Context(), "{"+s.prefix+"}:shards", "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c, Options{Prefix: s.prefix}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("opened on somebody's key: %v", err)
	}
}

// TestFM82_CaseThatCannotBeRead: one record that cannot be read hides no other case.
func TestFM82_CaseThatCannotBeRead(t *testing.T) {
	s := openFor(t, shared(t), Options{})
	for i := range 3 {
		g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(i), Nonce: nonce(), Lease: time.Hour})
		if err == nil {
			_, err = s.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Fail, Keep: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	damage(s)(t, keyOf(1))
	page, next, err := s.Cases(t.Context(), driver.CaseFilter{Limit: 10})
	if err != nil || next != "" || len(page) != 2 || page[0].Key != keyOf(0) || page[1].Key != keyOf(2) {
		t.Errorf("cases: %+v, next %q, %v", page, next, err)
	}
	if n, err := s.CountCases(t.Context(), "", driver.Absent, 10); err != nil || n != 2 {
		t.Errorf("%d cases, %v", n, err)
	}
}

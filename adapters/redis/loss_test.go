package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// guarantee is the guarantee line of a consumer with this store.
func guarantee(t *testing.T, s *Store) string {
	t.Helper()
	p, err := semel.Guarantee(semel.Config{
		Queue: memory.NewQueue("q"), Store: s, Consumer: "test",
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		Key:     func(m *semel.Message) (string, error) { return m.ID, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

// try completes a key; it reports whether the server confirmed that.
func try(ctx context.Context, s *Store, k driver.Key) bool {
	g, err := s.Claim(ctx, driver.Claim{Key: k, Nonce: nonce(), Lease: time.Hour})
	if err != nil || g[0].Err != nil || g[0].Verdict != driver.Acquired {
		return false
	}
	o, err := s.Finish(ctx, driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour, Result: []byte(k.Raw)})
	return err == nil && o[0] == driver.Applied
}

func verdict(t *testing.T, s *Store, k driver.Key) driver.Grant {
	t.Helper()
	g, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: nonce(), Lease: time.Hour})
	if err != nil || g[0].Err != nil {
		t.Fatalf("claim key %q: %v, %v", k.Raw, g, err)
	}
	return g[0]
}

// killUnderLoad completes keys from several goroutines, kills the server when n were confirmed, and starts it again. It
// returns those that were confirmed.
func killUnderLoad(t *testing.T, srv *server.Server, s *Store, n int) []driver.Key {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var confirmed []driver.Key
	enough := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				k := keyOf(w*1000000 + i)
				if !try(ctx, s, k) {
					return // the server is gone
				}
				mu.Lock()
				if confirmed = append(confirmed, k); len(confirmed) == n {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	stop()
	wg.Wait()
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return confirmed
}

// TestFM37_AlwaysSurvivesAKill: with appendfsync always everything that was confirmed is there after a SIGKILL.
func TestFM37_AlwaysSurvivesAKill(t *testing.T) {
	srv := server.Own(t, "redis", nil)
	s := openFor(t, connect(t, srv.URL()), Options{})
	if f := s.Features(); !f.Durable || len(f.Caveats) > 0 {
		t.Errorf("the store says %+v of a server that keeps everything", f)
	}
	n := 200
	if semeltest.Nightly() {
		n = 5000
	}
	for _, k := range killUnderLoad(t, srv, s, n) {
		if g := verdict(t, s, k); g.Verdict != driver.Replay || string(g.Result) != k.Raw {
			t.Fatalf("key %q was completed, and after a kill it is %v", k.Raw, g.Verdict)
		}
	}
}

// TestFM37_EverysecLosesTheTail: a SIGKILL of the server loses nothing with appendfsync everysec. A crash of its machine
// can: here the end of the log is cut off, as if it had not reached the disk. The guarantee line had said it.
func TestFM37_EverysecLosesTheTail(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"appendfsync": "everysec"})
	s := openFor(t, connect(t, srv.URL()), Options{})
	if line := guarantee(t, s); s.Features().Durable || !strings.Contains(line, "appendfsync is everysec") {
		t.Errorf("the guarantee line does not say what can be lost: %s", line)
	}
	confirmed := killUnderLoad(t, srv, s, 100)
	for _, k := range confirmed {
		if g := verdict(t, s, k); g.Verdict != driver.Replay {
			t.Fatalf("key %q was completed, and after a kill of the server alone it is %v", k.Raw, g.Verdict)
		}
	}
	last := keyOf(-1)
	if !try(t.Context(), s, last) {
		t.Fatal("the key was not completed")
	}
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(srv.Dir(), "data", "appendonlydir", "*.incr.aof"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("the server has no log: %v", err)
	}
	log := logs[len(logs)-1]
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(log, info.Size()-40); err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := verdict(t, s, last); g.Verdict == driver.Replay {
		t.Error("the end of the log was cut off, and the completion is still there: the test shows nothing")
	}
	for _, k := range confirmed {
		if g := verdict(t, s, k); g.Verdict != driver.Replay {
			t.Errorf("key %q is %v, although only the end of the log was lost", k.Raw, g.Verdict)
		}
	}
}

// failover is a primary with a replica that lags behind, and a client that follows a failover.
type failover struct {
	primary, replica *server.Server
	link             *server.Proxy // from the replica to the primary
	door             *server.Proxy // from the client to whoever is the primary
	client           *goredis.Client
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{primary: server.Own(t, "redis", nil)}
	f.link, f.door = proxy(t, f.primary.Addr()), proxy(t, f.primary.Addr())
	host, port, _ := strings.Cut(f.link.Addr(), ":")
	f.replica = server.Own(t, "redis", map[string]string{"replicaof": host + " " + port, "repl-diskless-sync-delay": "0"})
	f.client = connect(t, "redis://"+f.door.Addr()+"/0")
	f.await(t, func() bool { return f.client.Info(t.Context(), "replication").Val() != "" && f.synced(t) })
	return f
}

func proxy(t *testing.T, target string) *server.Proxy {
	t.Helper()
	p, err := server.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// await looks until it is so.
func (f *failover) await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the replica does not follow:\n%s", f.replica.Log())
		}
	}
}

// synced tells that the replica has all that the primary has.
func (f *failover) synced(t *testing.T) bool {
	n, err := f.client.Do(t.Context(), "WAIT", 1, 100).Int()
	return err == nil && n == 1
}

// promote kills the primary and makes the replica one.
func (f *failover) promote(t *testing.T) {
	t.Helper()
	if err := f.primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, f.replica.URL()).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	f.door.Forward(f.replica.Addr())
	f.door.Cut()
}

// TestFM37_FailoverLosesTheLastRecords: a replica that lags behind is promoted. The record that the primary confirmed last is lost,
// its message runs again, and the previous holder is fenced. The guarantee line had said it, and the history changes.
func TestFM37_FailoverLosesTheLastRecords(t *testing.T) {
	f := newFailover(t)
	s := openFor(t, f.client, Options{})
	if line := guarantee(t, s); s.Features().Durable || !strings.Contains(line, "a failover can lose the last confirmed records") {
		t.Errorf("the guarantee line does not say what can be lost: %s", line)
	}
	kept, lost, held := keyOf(1), keyOf(2), keyOf(3)
	if !try(t.Context(), s, kept) {
		t.Fatal("the key was not completed")
	}
	f.await(t, func() bool { return f.synced(t) })
	f.link.Stall(server.ToClient) // the replica hears nothing more
	if !try(t.Context(), s, lost) {
		t.Fatal("the key was not completed")
	}
	zombie := verdict(t, s, held).Hold
	history := s.History()
	f.promote(t)

	if g := verdict(t, s, kept); g.Verdict != driver.Replay {
		t.Errorf("a record that the replica had is %v", g.Verdict)
	}
	if g := verdict(t, s, lost); g.Verdict != driver.Acquired {
		t.Errorf("a record that the replica never had is %v: the test shows nothing", g.Verdict)
	}
	g := verdict(t, s, held)
	if g.Verdict != driver.Acquired || g.Hold.Token <= zombie.Token {
		t.Errorf("the key that was held is %v with token %d, after token %d", g.Verdict, g.Hold.Token, zombie.Token)
	}
	o, err := s.Finish(t.Context(), driver.Finish{Hold: zombie, Final: driver.Complete, Keep: time.Hour})
	if err != nil || o[0] != driver.Lost {
		t.Errorf("the previous holder completes its run: %v, %v", o, err)
	}
	if s.History() == history {
		t.Error("the history is the same after a failover: a cache would replay what is lost")
	}
}

// TestI3_ANonceFencesWhereATokenRepeats: a server that lost its records and whose clock stands still hands out a token
// again. The nonce tells the two holders apart.
func TestI3_ANonceFencesWhereATokenRepeats(t *testing.T) {
	s := openFor(t, shared(t), Options{clock: testClock})
	newClock(t, s)
	k := keyOf(1)
	old := verdict(t, s, k).Hold
	if err := s.client.Del(t.Context(), append([]string{s.name("r", newItem(&k))}, s.slot(0)+"floor", s.slot(0)+"index")...).Err(); err != nil {
		t.Fatal(err)
	}
	if again := verdict(t, s, k).Hold; again.Token != old.Token {
		t.Fatalf("the token is %d and was %d: the test shows nothing", again.Token, old.Token)
	}
	o, err := s.Extend(t.Context(), time.Hour, old)
	if err != nil || o[0] != driver.Lost {
		t.Errorf("the previous holder extends: %v, %v", o, err)
	}
	for _, final := range []driver.Final{driver.Complete, driver.Release, driver.Fail, driver.Park} {
		if o, err := s.Finish(t.Context(), driver.Finish{Hold: old, Final: final}); err != nil || o[0] != driver.Lost {
			t.Errorf("the previous holder ends the run with %v: %v, %v", final, o, err)
		}
	}
}

// TestFM38_EvictionIsDangerous: allkeys-lru removes records, and the guarantee line had said it.
func TestFM38_EvictionIsDangerous(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"maxmemory": "4mb", "maxmemory-policy": "allkeys-lru"})
	s := openFor(t, connect(t, srv.URL()), Options{})
	if line := guarantee(t, s); s.Features().Durable || !strings.Contains(line, "maxmemory-policy is allkeys-lru") {
		t.Errorf("the guarantee line does not say what can be lost: %s", line)
	}
	fill(t, s)
	if n, err := s.client.Info(t.Context(), "stats").Result(); err != nil || strings.Contains(n, "evicted_keys:0") {
		t.Errorf("nothing was evicted: the test shows nothing (%v)", err)
	}
}

// fill completes keys with large results until the memory is full, and a few more. It returns how many were completed, and
// the first error.
func fill(t *testing.T, s *Store) (done int, err error) {
	t.Helper()
	for i := range 60 {
		g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(i), Nonce: nonce(), Lease: time.Hour})
		if err == nil {
			err = g[0].Err
		}
		if err == nil {
			_, err = s.Finish(t.Context(), driver.Finish{
				Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour, Result: make([]byte, 200<<10),
			})
		}
		if err != nil {
			return i, err
		}
	}
	return 60, nil
}

// TestFM50_FullMemory: with noeviction a full memory refuses writes. It is an outage and no attempt's failure; nothing that
// was confirmed is lost, and with more memory the same writes succeed.
func TestFM50_FullMemory(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"maxmemory": "4mb"})
	s := openFor(t, connect(t, srv.URL()), Options{})
	done, err := fill(t, s)
	if !errors.Is(err, driver.ErrOutage) || !strings.Contains(fmt.Sprint(err), "OOM") {
		t.Fatalf("after %d records the memory is full, and the error is %v", done, err)
	}
	var c driver.Claim
	for i := range 10000 { // a small record may still fit
		c = driver.Claim{Key: keyOf(1000 + i), Nonce: nonce(), Lease: time.Hour}
		if _, err = s.Claim(t.Context(), c); err != nil {
			break
		}
	}
	if !errors.Is(err, driver.ErrOutage) {
		t.Errorf("a claim returns %v", err)
	}
	if n := s.client.Exists(t.Context(), s.name("r", newItem(&c.Key))).Val(); n != 0 {
		t.Error("a claim that was refused wrote a record")
	}
	if err := s.client.ConfigSet(t.Context(), "maxmemory", "64mb").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range done {
		if g := verdict(t, s, keyOf(i)); g.Verdict != driver.Replay {
			t.Errorf("key %d was completed before, and is %v", i, g.Verdict)
		}
	}
	g, err := s.Claim(t.Context(), c)
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Errorf("with more memory the claim returns %v, %v", g, err)
	}
}

package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// rights is the rule of docs/adapters.md for a worker.
const rights = "resetchannels ~{semel* +evalsha +eval +get +set +setnx +mset +del +exists +hset +hdel +hincrby +hgetall " +
	"+zadd +zrem +zscan +zrangebyscore +zrevrangebyscore +time +info +config|get +client|setname +hello +ping"

// queueRights are what a queue needs besides.
const queueRights = " +hget +hkeys +hmget +hsetnx +xadd +xread +xreadgroup +xautoclaim +xclaim +xpending +xack +xdel +xrange +xlen +xtrim " +
	"+xinfo +xgroup +zcard +zscore +zrange +zrevrange +multi +exec"

// testQueueRights does all that a queue does.
func testQueueRights(t *testing.T, s *Store) {
	t.Helper()
	q := queueOf(t, s, 20*time.Millisecond)
	send(t, q, 3)
	err1 := q.Send(t.Context(), driver.Message{Delay: time.Millisecond})
	receive(t, q, 4)
	ds := receive(t, q, 4) // they expired
	_, err2 := q.Extend(t.Context(), 0, ds[0].Receipt)
	_, err3 := q.Settle(t.Context(), driver.Settlement{Receipt: ds[0].Receipt},
		driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Retry}, driver.Settlement{Receipt: ds[2].Receipt, Action: driver.Retry, After: time.Hour},
		driver.Settlement{Receipt: ds[3].Receipt, Action: driver.Dead, DeadLetter: &driver.DeadLetter{ID: "l"}})
	_, err4 := q.Stats(t.Context())
	_, err5 := q.Peek(t.Context(), 10)
	_, err6 := q.DeadLetters(t.Context(), 0)
	_, _, err7 := q.DeadLetter(t.Context(), "l")
	_, _, err8 := q.PageDeadLetters(t.Context(), driver.DeadLetterFilter{Limit: 1, Newest: true})
	_, _, err9 := s.Cases(t.Context(), driver.CaseFilter{Limit: 1, Newest: true})
	_, err10 := q.Purge(t.Context())
	_, err11 := s.Queues(t.Context())
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, q.DeleteDeadLetter(t.Context(), "l")); err != nil {
		t.Error(err)
	}
}

// TestRightsAreEnough: with the rights of the documentation a user can do all that a store does. Without them the error names
// what is not permitted.
func TestRightsAreEnough(t *testing.T) {
	srv := server.Own(t, "redis", map[string]string{"appendonly": "no"})
	admin := connect(t, srv.URL())
	user := func(name, rules string) *goredis.Client {
		args := []any{"ACL", "SETUSER", name, "on", ">secret"}
		for _, r := range strings.Fields(rules) {
			args = append(args, r)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		return connect(t, strings.Replace(srv.URL(), "redis://", "redis://"+name+":secret@", 1))
	}
	s, err := Open(t.Context(), user("worker", rights), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.server.Hidden {
		t.Error("CONFIG GET is permitted, and the settings are not known")
	}
	g := verdict(t, s, keyOf(1))
	if _, err := s.WriteSteps(t.Context(), g.Hold, driver.StepWrite{Kind: driver.RegisterStep, Name: "a"}); err != nil {
		t.Error(err)
	}
	for _, final := range []driver.Final{driver.Fail} {
		if o, err := s.Finish(t.Context(), driver.Finish{Hold: g.Hold, Final: final, Keep: -time.Hour}); err != nil || o[0] != driver.Applied {
			t.Error(o, err)
		}
	}
	_, err1 := s.Extend(t.Context(), time.Hour, g.Hold)
	_, _, err2 := s.Operate(t.Context(), driver.Operation{Kind: driver.Discard, Key: keyOf(1), Keep: time.Hour})
	_, err3 := s.Audit(t.Context(), driver.AuditFilter{})
	for _, seen := range []time.Time{{}, time.Now()} { // the second report removes the first
		if err := s.ReportWorker(t.Context(), driver.WorkerReport{ID: seen.String(), Seen: seen}); err != nil {
			t.Error(err)
		}
	}
	if all, err := s.Workers(t.Context()); err != nil || len(all) != 1 {
		t.Error(all, err)
	}
	_, err4 := s.Records(t.Context(), driver.RecordFilter{})
	err5 := s.AddDuplicates(t.Context(), driver.Duplicate{Key: keyOf(1)})
	_, _, err6 := s.Duplicates(t.Context(), keyOf(1))
	swept, _, err7 := s.Sweep(t.Context(), time.Hour, 10)
	err8 := s.SetLongTerm(t.Context(), "orders", time.Hour)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8); err != nil || swept.Purged != 1 {
		t.Errorf("%v, swept %+v", err, swept)
	}
	both, err := Open(t.Context(), user("both", rights+queueRights), Options{})
	if err != nil {
		t.Fatal(err)
	}
	testQueueRights(t, both)
	if s, err = Open(t.Context(), user("hidden", strings.Replace(rights, "+config|get", "", 1)), Options{}); err != nil || !s.server.Hidden {
		t.Errorf("without CONFIG: %v", err)
	} else if f := s.Features(); f.Durable || len(f.Caveats) == 0 {
		t.Errorf("without CONFIG: %+v", f)
	}
	s, err = Open(t.Context(), user("none", strings.Replace(rights, "+evalsha", "", 1)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), driver.Claim{Key: keyOf(2), Nonce: nonce(), Lease: time.Hour})
	if !errors.Is(err, driver.ErrOutage) || !strings.Contains(err.Error(), "evalsha") {
		t.Errorf("without EVALSHA: %v", err)
	}
}

package semellambda_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	semellambda "github.com/semel-dev/semel/adapters/aws/lambda"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/memory"
)

func ids(failed []string) string { return fmt.Sprint(failed) }

func many(n int, what string) (rs []events.SQSMessage) {
	for i := range n {
		rs = append(rs, rec(fmt.Sprint(i+1), fmt.Sprintf("%s %d", what, i+1), ""))
	}
	return rs
}

func alone(cfg *semel.Config, _ *semellambda.Options) { cfg.Concurrency = 1 }

// TestNothingIsBegunTooLate: by the times of the first runs, a message that could not end in time is not begun, and has
// spent no attempt.
func TestNothingIsBegunTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, alone)
		for round := range 2 { // the second invocation knows from the beginning
			w.ran = nil
			began := time.Now()
			rs := many(10, "slow")
			for i := range rs {
				rs[i].MessageId = fmt.Sprint(round, "-", i+1)
			}
			failed := w.invoke(10*time.Second, rs...)
			if len(w.ran) < 3 || len(w.ran) > 4 {
				t.Fatalf("%d runs of 2 s in 9 s", len(w.ran))
			}
			if d := time.Since(began); d > 9*time.Second {
				t.Errorf("returned after %v", d)
			}
			for _, id := range failed {
				if r := w.record(id); r.State != driver.Absent && (r.State != driver.Released || r.Attempt != 0) {
					t.Errorf("record of %s, which was not begun: %+v", id, r)
				}
			}
			for i := range 3 {
				id := rs[i].MessageId
				if slices.Contains(failed, id) || w.record(id).State != driver.Completed {
					t.Errorf("%s is reported (%q), its record %+v", id, failed, w.record(id))
				}
			}
			if len(failed) != 10-len(w.ran) {
				t.Errorf("failed %q after the runs %q", failed, w.ran)
			}
		}
	})
}

// TestARunThatHadTheInvocationHasFailed: a run that had the whole invocation has failed. One that began late is only
// redelivered.
func TestARunThatHadTheInvocationHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil)
		if got := ids(w.invoke(10*time.Second, rec("1", "long", ""))); got != "[1]" {
			t.Fatalf("failed %s", got)
		}
		if r := w.record("1"); r.State != driver.Released || r.Failures != 1 || !r.Unknown {
			t.Errorf("record %+v", r)
		}
		w = newFixture(t, alone)
		if got := ids(w.invoke(10*time.Second, rec("1", "slow", ""), rec("2", "long", ""))); got != "[2]" {
			t.Fatalf("failed %s", got)
		}
		if r := w.record("2"); r.State != driver.Released || r.Failures != 0 || !r.Unknown {
			t.Errorf("record %+v", r)
		}
	})
}

// TestLaw11_DeafHandlersEndTheProcess: the process must not be frozen with a handler that would run on after its lease has
// ended. The claim stays, and ends by itself a second after the deadline.
func TestLaw11_DeafHandlersEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		end := time.Now().Add(10 * time.Second)
		got, err := w.h.Handle(ctx, events.SQSEvent{Records: []events.SQSMessage{rec("1", "stuck", ""), rec("2", "ok", "")}})
		if stuck := (*semel.HandlerStuckError)(nil); !errors.As(err, &stuck) || stuck.N != 1 || w.exits != 1 || len(got.BatchItemFailures) != 0 {
			t.Fatalf("%v, %v, %d exits", got, err, w.exits)
		}
		if !time.Now().Before(end) {
			t.Error("the process outlived the deadline")
		}
		r := w.record("1")
		if r.State != driver.InProgress || r.LeaseUntil.After(end.Add(time.Second)) || r.LeaseUntil.Before(end) {
			t.Errorf("deadline %v, record %+v", end, r)
		}
		if w.record("2").State != driver.Completed {
			t.Errorf("record of 2: %+v", w.record("2"))
		}
		time.Sleep(2 * time.Minute) // in a test the process lives on
	})
}

// TestNoLeaseOutlivesTheInvocation: neither the first lease, nor one that the heartbeat extends, nor that of a late claim.
func TestNoLeaseOutlivesTheInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *fixture
		end := time.Now().Add(20 * time.Second)
		looks := 0
		w = newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
			cfg.Concurrency = 1
			cfg.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
				for range 8 {
					time.Sleep(time.Second)
					looks++
					if r := w.record(a.Key.Raw); r.LeaseUntil.After(end.Add(time.Second+10*time.Millisecond)) || r.LeaseUntil.Before(end) {
						t.Errorf("%v before the end the lease of %s ends %v behind it", time.Until(end), a.Key.Raw, r.LeaseUntil.Sub(end))
					}
				}
				return nil
			})
		})
		if got := ids(w.invoke(20*time.Second, many(2, "x")...)); got != "[]" || looks != 16 {
			t.Fatalf("failed %s after %d looks", got, looks)
		}
	})
}

// slowStore delays claims.
type slowStore struct {
	driver.Store
	takes time.Duration
}

func (s slowStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	gs, err := s.Store.Claim(ctx, c...)
	time.Sleep(s.takes)
	return gs, err
}

// TestWhatWasLearntNeverStopsEverything: even if runs took longer than an invocation has, something is begun.
func TestWhatWasLearntNeverStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
			cfg.Concurrency, cfg.Store = 1, slowStore{cfg.Store, 200 * time.Millisecond}
		})
		w.invoke(60*time.Second, many(20, "slow")...)
		for i := range 3 {
			w.ran = nil
			w.invoke(1500*time.Millisecond, rec(fmt.Sprint("late", i), "ok", ""))
			if len(w.ran) == 1 {
				return
			}
		}
		t.Error("nothing is begun")
	})
}

// silent is a store that stops responding.
type silent struct {
	driver.Store
	finish atomic.Bool
}

func (s *silent) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if s.finish.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Finish(ctx, f...)
}

// TestLaw4_NoResponseWritesAreFailures: the outcome is unknown, so the message is reported, and Handle returns in time.
func TestLaw4_NoResponseWritesAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &silent{}
		st.finish.Store(true)
		w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
			st.Store = cfg.Store
			cfg.Store = st
		})
		if got := ids(w.invoke(10*time.Second, rec("1", "ok", ""))); got != "[1]" || w.exits != 0 {
			t.Fatalf("failed %s, %d exits", got, w.exits)
		}
		time.Sleep(time.Minute)
		st.finish.Store(false)
		if got := ids(w.invoke(10*time.Second, rec("1", "ok", ""))); got != "[]" || len(w.ran) != 2 {
			t.Fatalf("failed %s after %q", got, w.ran)
		}
	})
}

// down is a store that is unavailable.
type down struct{ driver.Store }

func (down) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) { return nil, errBoom }

// TestLaw8_StoreDown: nothing runs, all messages are reported.
func TestLaw8_StoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) { cfg.Store = down{cfg.Store} })
		if got := ids(w.invoke(10*time.Second, many(3, "ok")...)); got != "[1 2 3]" || len(w.ran) != 0 {
			t.Fatalf("failed %s after %q", got, w.ran)
		}
	})
}

// TestNoTimeAtAll: an invocation whose deadline is near begins nothing, and returns.
func TestNoTimeAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, nil)
		if got := ids(w.invoke(100*time.Millisecond, many(3, "ok")...)); got != "[1 2 3]" || len(w.ran) != 0 {
			t.Fatalf("failed %s after %q", got, w.ran)
		}
	})
}

// TestRequestsEndWithTheInvocation: the context of a run ends before the deadline, however long the claim took, and its
// lease shortly after it: a killed function does not leave its key busy for longer.
func TestRequestsEndWithTheInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		end, _ := ctx.Deadline()
		h, err := semellambda.NewHTTP(edgehttp.Options{Store: slowStore{store, 3 * time.Second}, Tenant: edgehttp.SingleTenant},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a, _ := semel.AttemptFrom(r.Context())
				look := func() {
					got, _, err := store.Record(t.Context(), a.Key)
					if err != nil || got.State != driver.InProgress || got.LeaseUntil.After(end.Add(time.Second)) || got.LeaseUntil.Before(end) {
						t.Errorf("the lease ends %v behind the deadline: %+v, %v", got.LeaseUntil.Sub(end), got, err)
					}
				}
				look()
				<-r.Context().Done()
				look()
				if left := time.Until(end); left != time.Second || !errors.Is(context.Cause(r.Context()), semel.ErrTimeout) {
					t.Errorf("%v before the deadline: %v", left, context.Cause(r.Context()))
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
		if err != nil {
			t.Fatal(err)
		}
		ev := events.APIGatewayV2HTTPRequest{RawPath: "/orders", Headers: map[string]string{"idempotency-key": "k"}}
		ev.RequestContext.HTTP.Method = "POST"
		if a, err := h.V2(ctx, ev); err != nil || a.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("got %+v, %v", a, err)
		}
	})
}

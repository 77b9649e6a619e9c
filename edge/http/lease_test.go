package edgehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/memory"
)

// deaf is a store whose extensions can stop responding.
type deaf struct {
	*memory.Store
	cut atomic.Bool
}

func (d *deaf) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if d.cut.Load() {
		return nil, errors.New("cut off")
	}
	return d.Store.Extend(ctx, lease, h...)
}

// leased runs fn as an attempt with a lease of ten seconds.
func leased(t *testing.T, fn func(ctx context.Context, a *semel.Attempt, s *deaf)) {
	synctest.Test(t, func(t *testing.T) {
		s := &deaf{Store: memory.NewStore()}
		_, _, _ = semel.Do(t.Context(), s, semel.Key{Raw: "1"}, func(ctx context.Context, a *semel.Attempt) (int, error) {
			fn(ctx, a, s)
			return 0, nil
		}, semel.WithLease(10*time.Second))
	})
}

// TestFM02_ZombieSendsNothing: a process that stood still while its lease ended sends nothing when it wakes up: neither
// with the context of the run, nor with one that does not end with it.
func TestFM02_ZombieSendsNothing(t *testing.T) {
	leased(t, func(ctx context.Context, _ *semel.Attempt, s *deaf) {
		base := &sent{}
		c := client(base)
		ctx = edgehttp.WithStep(ctx, "charge")
		if _, err := send(ctx, c, "POST", "http://bank/charges", "1"); err != nil || len(base.keys) != 1 {
			t.Fatalf("in time: %v", err)
		}
		s.cut.Store(true)
		time.Sleep(30 * time.Second)
		for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} {
			for _, method := range []string{"POST", "GET"} {
				if _, err := send(ctx, c, method, "http://bank/charges", "1"); !errors.Is(err, semel.ErrFenced) {
					t.Errorf("%s after the lease: %v, want ErrFenced", method, err)
				}
			}
		}
		if len(base.keys) != 1 {
			t.Errorf("a zombie sent %d requests", len(base.keys)-1)
		}
	})
}

// TestFM02_ResponseIsAwaitedUntilTheLeaseEnds: however often it was extended meanwhile; and also when the handler passed
// a context that does not end with the run.
func TestFM02_ResponseIsAwaitedUntilTheLeaseEnds(t *testing.T) {
	leased(t, func(ctx context.Context, a *semel.Attempt, s *deaf) {
		began := time.Now()
		time.AfterFunc(time.Minute, func() { s.cut.Store(true) })
		base := &sent{serve: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		_, err := send(context.WithoutCancel(ctx), client(base), "POST", "http://bank/charges", "1")
		if !errors.Is(err, semel.ErrFenced) {
			t.Errorf("%v, want ErrFenced", err)
		}
		took, ended := time.Since(began), time.Since(a.LeaseUntil())
		if took < 55*time.Second || ended < 0 || ended > time.Second {
			t.Errorf("given up after %v, %v after the end of the lease", took, ended)
		}
	})
}

// hangingBody is a body that never comes.
type hangingBody struct{ ctx context.Context }

func (b hangingBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }
func (b hangingBody) Close() error             { return nil }

// TestFM02_BodyIsReadUntilTheLeaseEnds: the same for a response whose body does not arrive.
func TestFM02_BodyIsReadUntilTheLeaseEnds(t *testing.T) {
	leased(t, func(ctx context.Context, _ *semel.Attempt, s *deaf) {
		s.cut.Store(true)
		base := &sent{serve: func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: hangingBody{r.Context()}, Request: r}, nil
		}}
		status, err := send(context.WithoutCancel(ctx), client(base), "POST", "http://bank/charges", "1")
		if status != http.StatusOK || !errors.Is(err, semel.ErrFenced) {
			t.Errorf("%d, %v, want 200 and ErrFenced", status, err)
		}
	})
}

// duplexBody is the connection behind 101 Switching Protocols.
type duplexBody struct{ hangingBody }

func (duplexBody) Write(p []byte) (int, error) { return len(p), nil }

// TestUpgrade: the body of an upgraded connection can still be written to.
func TestUpgrade(t *testing.T) {
	leased(t, func(ctx context.Context, _ *semel.Attempt, _ *deaf) {
		base := &sent{serve: func(r *http.Request) (*http.Response, error) {
			body := duplexBody{hangingBody{r.Context()}}
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: body, Request: r}, nil
		}}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bank/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client(base).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if w, ok := resp.Body.(io.Writer); !ok {
			t.Error("it cannot be written to")
		} else if n, err := w.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
}

// TestAttemptsAreForgotten: a transport that lives as long as the process forgets the attempts that have ended.
func TestAttemptsAreForgotten(t *testing.T) {
	tr := &edgehttp.Transport{Base: &sent{}}
	c := &http.Client{Transport: tr}
	db := memory.Open()
	queue := db.Queue("orders")
	const n = 20
	for range n {
		if err := queue.Send(t.Context(), semel.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := semel.New(semel.Config{Queue: queue, Store: db.Store(), Limit: n, Concurrency: 1,
		Handler: semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error {
			_, err := send(ctx, c, "POST", "http://bank/charges", "1")
			return err
		})})
	if err != nil {
		t.Fatal(err)
	}
	if err := consumer.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := consumer.Summary().Effects; got != n {
		t.Fatalf("%d effects", got)
	}
	for end := time.Now().Add(time.Minute); edgehttp.Attempts(tr) > 1; runtime.GC() { // one may be in a register still
		if time.Now().After(end) {
			t.Fatalf("%d of %d attempts are kept", edgehttp.Attempts(tr), n)
		}
	}
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// arrays is an endpoint that takes arrays, and what it saw. reply returns the result of a message; status, if not 0, is that of
// the whole response.
type arrays struct {
	reply  func(m *messageLine) string
	status func(all []messageLine, r *http.Request) int

	mu       sync.Mutex
	sizes    []int
	requests []*http.Request
}

func (e *arrays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var all []messageLine
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	e.mu.Lock()
	e.sizes, e.requests = append(e.sizes, len(all)), append(e.requests, r)
	e.mu.Unlock()
	if e.status != nil {
		if code := e.status(all, r); code != 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(code)
			return
		}
	}
	var out []string
	for i := range all {
		if line := e.reply(&all[i]); line != "" {
			out = append(out, strings.ReplaceAll(line, "$ID", fmt.Sprint(all[i].ID)))
		}
	}
	_, _ = fmt.Fprintf(w, "[%s]\n", strings.Join(out, ","))
}

// largest is the size of the largest array.
func (e *arrays) largest() (n int) {
	for _, size := range e.sizes {
		n = max(n, size)
	}
	return n
}

func done(*messageLine) string { return `{"id":$ID,"outcome":"done","result":{"n":1}}` }

// post starts the endpoint. One request runs at once, so that messages wait and make arrays.
func (e *arrays) post(t *testing.T, n int, secret []byte) *HTTPBatch {
	t.Helper()
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	return &HTTPBatch{HTTP: NewHTTP(HTTP{URL: srv.URL, Queue: "q", Keep: 1 << 10, Log: quiet(), Secret: secret}, 1), Batch: n, Requests: 1}
}

// bodies are n messages whose body is their number.
func bodies(n int) []semel.Message {
	msgs := make([]semel.Message, n)
	for i := range msgs {
		msgs[i] = semel.Message{Body: fmt.Appendf(nil, `[%d]`, i)}
	}
	return msgs
}

func slots(n int) func(*semel.Config) {
	return func(c *semel.Config) { c.Concurrency, c.Batch, c.MaxAttempts = n, n, 3 }
}

// Each message of an array has its own result; one without is retried in a request of its own.
func TestHTTPBatch(t *testing.T) {
	e := &arrays{reply: func(m *messageLine) string {
		switch {
		case string(m.Body) == "[3]":
			return `{"id":$ID,"outcome":"dead","reason":"bad"}`
		case string(m.Body) == "[5]" && m.Attempt == 1:
			return ""
		}
		return done(m)
	}}
	got, _ := run(t, e.post(t, 8, []byte("secret")).Handler(), slots(8), bodies(40)...)
	if got.Effects != 39 || got.Dead != 1 || got.Retried != 1 {
		t.Errorf("got %+v", got)
	}
	if n := e.largest(); n < 2 || n > 8 {
		t.Errorf("the largest array has %d messages: %v", n, e.sizes)
	}
	for _, r := range e.requests {
		if r.Header.Get("Webhook-Signature") == "" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Idempotency-Key") != "" {
			t.Fatalf("headers %v", r.Header)
		}
	}
}

// TestFM60_HTTPBatchStatus: a status is about the whole request. A message that makes it fail is found: none other fails with it.
func TestFM60_HTTPBatchStatus(t *testing.T) {
	for _, code := range []int{422, 500} {
		e := &arrays{reply: done, status: func(all []messageLine, _ *http.Request) int {
			for i := range all {
				if string(all[i].Body) == "[4]" {
					return code
				}
			}
			return 0
		}}
		got, _ := run(t, e.post(t, 8, nil).Handler(), slots(8), bodies(12)...)
		if got.Effects != 11 || got.Dead != 1 {
			t.Errorf("%d: got %+v", code, got)
		}
	}
	n := 0
	e := &arrays{reply: done, status: func([]messageLine, *http.Request) int {
		if n++; n < 5 {
			return http.StatusConflict
		}
		return 0
	}}
	b := e.post(t, 8, nil)
	deferred := func(c *semel.Config) {
		slots(8)(c)
		c.MaxAttempts = 1
	}
	if got, _ := run(t, b.Handler(), deferred, bodies(1)...); got.Effects != 1 || got.Dead != 0 {
		t.Errorf("409: got %+v", got)
	}
}

// A response with a mistake counts for nothing: it is unknown what was applied.
func TestHTTPBatchBadResponses(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON": `{"id":`, "another id": `{"id":999999,"outcome":"done"}`, "twice": `{"id":$ID,"outcome":"done"},{"id":$ID,"outcome":"dead"}`,
		"unknown outcome": `{"id":$ID,"outcome":"perhaps"}`, "unknown member": `{"id":$ID,"outcome":"done","x":1}`,
	} {
		e := &arrays{reply: func(*messageLine) string { return line }}
		got, _ := run(t, e.post(t, 8, nil).Handler(), func(c *semel.Config) { c.Takeover = semel.Once }, bodies(1)...)
		if got.Uncertain != 1 || got.Effects != 0 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFM7_HTTPBatchCancel: when one message is cancelled, so is the request, and no message's handler returns before the request
// has ended: its key would be released while it still runs.
func TestFM7_HTTPBatchCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		first, ended := make(chan struct{}), make(chan struct{})
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			var all []messageLine
			if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
				t.Error(err)
			}
			if sizes = append(sizes, len(all)); len(sizes) == 1 {
				<-first
				return &http.Response{StatusCode: http.StatusConflict, Body: http.NoBody}, nil
			}
			<-r.Context().Done()
			<-ended
			return nil, r.Context().Err()
		})
		b := &HTTPBatch{HTTP: &HTTP{URL: "http://endpoint", Log: quiet(), Client: &http.Client{Transport: transport}}, Batch: 2, Requests: 1}
		ctx, cancel := context.WithCancelCause(t.Context())
		var errs [3]error
		var returned atomic.Int32
		for i, ctx := range []context.Context{t.Context(), ctx, t.Context()} {
			go func() {
				errs[i] = b.Handler().Handle(ctx, &semel.Attempt{Number: 1})
				returned.Add(1)
			}()
			synctest.Wait()
		}
		close(first)
		synctest.Wait()
		cancel(semel.ErrFenced)
		synctest.Wait()
		if n := returned.Load(); n != 1 || len(sizes) != 2 || sizes[1] != 2 {
			t.Fatalf("%d returned while the request runs; requests of %v", n, sizes)
		}
		close(ended)
		synctest.Wait()
		for _, err := range errs[1:] {
			if !errors.Is(err, semel.ErrFenced) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A message that no request took is no attempt when it is cancelled.
func TestHTTPBatchCancelledBeforeItsRequest(t *testing.T) {
	b := &HTTPBatch{HTTP: &HTTP{Log: quiet()}, Batch: 1}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(semel.ErrFenced)
	err := b.Handler().Handle(ctx, &semel.Attempt{})
	if err == nil || !strings.Contains(err.Error(), "before") || len(b.waiting) != 0 {
		t.Errorf("got %v, %d wait", err, len(b.waiting))
	}
}

// TestFM60_HTTPBatchEffects: with --effects sql the effects of an array commit in one transaction with the records.
func TestFM60_HTTPBatchEffects(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.SQL().ExecContext(t.Context(), "CREATE TABLE t (n INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	e := &arrays{
		reply: func(m *messageLine) string {
			n := strings.Trim(string(m.Body), "[]")
			switch n {
			case "3":
				return `{"id":$ID,"outcome":"dead"}`
			case "11": // a row that is there
				n = "10"
			}
			return `{"id":$ID,"outcome":"done","effects":[{"insert":"t","row":{"n":` + n + `}}]}`
		},
		status: func(all []messageLine, _ *http.Request) int {
			for i := range all {
				if string(all[i].Body) == "[5]" {
					return 500
				}
			}
			return 0
		},
	}
	b := e.post(t, 8, nil)
	got := runOn(t, db.Queue("q"), db.Store(), b.BatchStatements(), func(c *semel.Config) { c.Batch, c.Takeover = 8, semel.Once }, bodies(40)...)
	if got.Effects != 37 || got.Dead != 3 || got.Uncertain != 0 || e.largest() < 2 {
		t.Errorf("got %+v, arrays %v", got, e.sizes)
	}
	var rows, sum int
	if err := db.SQL().QueryRowContext(t.Context(), "SELECT count(*), sum(n) FROM t").Scan(&rows, &sum); err != nil {
		t.Fatal(err)
	}
	if want := 40*39/2 - 3 - 5 - 11; rows != 37 || sum != want {
		t.Errorf("%d rows, sum %d, want 37, %d", rows, sum, want)
	}
}

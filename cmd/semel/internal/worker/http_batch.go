package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// HTTPBatch posts arrays of messages to an endpoint (docs/worker.md): those that wait when a request can start. Its handlers may
// be called concurrently.
type HTTPBatch struct {
	*HTTP
	// Batch is how many messages one request has at most, Requests how many requests run at once.
	Batch, Requests int

	mu      sync.Mutex
	last    uint64 // id of the latest message
	waiting []*httpRun
	running int
}

// httpRun is one message on its way through a request.
type httpRun struct {
	lineRun
	ctx   context.Context
	begun bool // its request was started; guarded by the lock
}

// Handler is a handler whose results become the stored results.
func (b *HTTPBatch) Handler() semel.Handler {
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
		r := b.add(ctx, a)
		select {
		case <-r.done:
		case <-ctx.Done():
			if b.forget(r) {
				return notTaken(context.Cause(ctx))
			}
			<-r.done // the request ends with ctx
		}
		return r.take(nil, b.Keep, b.Log)
	})
}

// BatchStatements is a handler that posts a batch as one array, and whose effects commit in one transaction with the records.
func (b *HTTPBatch) BatchStatements() semel.Handler {
	return semel.InTxBatch(func(ctx context.Context, tx *semel.Statements, batch []*semel.Attempt) error {
		runs := make([]*httpRun, len(batch))
		all := make([]*lineRun, len(batch))
		b.mu.Lock()
		for i, a := range batch {
			runs[i] = b.next(ctx, a)
			all[i] = &runs[i].lineRun
		}
		b.mu.Unlock()
		b.post(ctx, runs)
		return takeAll(all, tx, b.Keep, b.Log)
	})
}

// next makes a run. The caller holds the lock.
func (b *HTTPBatch) next(ctx context.Context, a *semel.Attempt) *httpRun {
	b.last++
	return &httpRun{lineRun: newLineRun(b.last, a), ctx: ctx}
}

func (b *HTTPBatch) add(ctx context.Context, a *semel.Attempt) *httpRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.next(ctx, a)
	b.waiting = append(b.waiting, r)
	b.start()
	return r
}

// forget takes a run back whose request has not started.
func (b *HTTPBatch) forget(r *httpRun) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.begun {
		return false
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(other *httpRun) bool { return other == r })
	return true
}

// start starts requests for what waits. The caller holds the lock.
func (b *HTTPBatch) start() {
	for b.running < b.Requests && len(b.waiting) > 0 {
		n := 1
		for !alone(b.waiting[0]) && n < min(b.Batch, len(b.waiting)) && !alone(b.waiting[n]) {
			n++
		}
		runs := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		for _, r := range runs {
			r.begun = true
		}
		b.running++
		go b.request(runs)
	}
}

// alone: a message that was run before has a request to itself. If it is what made the request fail, no other fails with it.
func alone(r *httpRun) bool { return r.a.Number > 1 || r.a.Unknown }

// request posts an array, and starts the next. The request ends when one of its messages is cancelled: its key must not be
// released while the endpoint still runs it.
func (b *HTTPBatch) request(runs []*httpRun) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(runs[0].ctx))
	for _, r := range runs {
		stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
		defer stop()
	}
	b.post(ctx, runs)
	cancel(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.start()
}

// post sends one array, and ends its runs.
func (b *HTTPBatch) post(ctx context.Context, runs []*httpRun) {
	results, err := b.exchange(ctx, runs)
	for _, r := range runs {
		switch reply := results[r.id]; {
		case err != nil:
			r.end(nil, err)
		case reply == nil:
			r.end(nil, &failure{broken: true, text: fmt.Sprintf("the endpoint's response has no result of message %d", r.id)})
		default:
			r.end(reply, nil)
		}
	}
}

// exchange sends one array and returns the results by id. An error is that of all messages.
func (b *HTTPBatch) exchange(ctx context.Context, runs []*httpRun) (map[uint64]*resultLine, error) {
	req, err := b.arrayRequest(ctx, runs)
	if err != nil {
		return nil, semel.NotApplied(fmt.Errorf("make request: %w", shown(err, b.URL)))
	}
	res, err := b.Client.Do(req)
	if err != nil {
		return nil, b.failure(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, EffectsKeep+1))
	switch {
	case err != nil:
		return nil, b.failure(ctx, fmt.Errorf("read response: %w", err))
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, b.refusal(res, body, len(runs))
	case len(body) > EffectsKeep:
		return nil, &failure{broken: true, text: fmt.Sprintf("the endpoint's response has more than %d bytes", EffectsKeep)}
	}
	results, err := resultsOf(runs, bytes.TrimSpace(body))
	if err != nil {
		return nil, &failure{broken: true, text: fmt.Sprintf("the endpoint's response is no array of results: %s", err), err: err}
	}
	return results, nil
}

// resultsOf reads a response. Nothing counts of one that has a mistake.
func resultsOf(runs []*httpRun, body []byte) (map[uint64]*resultLine, error) {
	all, err := readResults(body)
	if err != nil {
		return nil, err
	}
	sent := make(map[uint64]bool, len(runs))
	for _, r := range runs {
		sent[r.id] = true
	}
	out := make(map[uint64]*resultLine, len(all))
	for _, r := range all {
		if !sent[r.ID] || out[r.ID] != nil {
			return nil, fmt.Errorf("it has a result of message %d, which was not sent, or a second one", r.ID)
		}
		out[r.ID] = r
	}
	return out, nil
}

// refusal is a response other than 2xx: it holds for the whole request. If one of several messages may be at fault, each is
// tried again in a request of its own.
func (b *HTTPBatch) refusal(res *http.Response, body []byte, messages int) error {
	fail := error(&failure{
		status: res.StatusCode, text: withDetail(fmt.Errorf("handler responded %s", res.Status), reasonOf(res, body)).Error(),
	})
	if messages > 1 && permanentStatus(res.StatusCode) && ruled(b.Retry, fail) == nil {
		return semel.NotApplied(fail)
	}
	return b.byStatus(res.StatusCode, fail, retryAfter(res.Header.Get("Retry-After"), time.Now()))
}

func (b *HTTPBatch) arrayRequest(ctx context.Context, runs []*httpRun) (*http.Request, error) {
	all := make([]*messageLine, len(runs))
	keys := sha256.New()
	for i, r := range runs {
		all[i] = lineOf(r.id, b.Queue, r.a)
		keys.Write([]byte(all[i].EffectKey))
	}
	body, err := encodeLine(all)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "semel")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Semel-Queue", headerValue(b.Queue))
	if b.Secret != nil {
		sign(req.Header, b.Secret, hex.EncodeToString(keys.Sum(nil)), body, time.Now())
	}
	return req, nil
}

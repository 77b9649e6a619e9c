package sqs

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/driver"
)

// halves is a service that writes responses to receives in two halves, the second when the test allows it.
type halves struct {
	fake    http.Handler
	half    chan struct{} // the head has arrived at the client
	rest    chan struct{} // the second half may go
	client  http.RoundTripper
	receive func(r *http.Request) bool
}

func (h *halves) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.receive(r) {
		h.fake.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	h.fake.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	b := rec.Body.Bytes()
	_, _ = w.Write(b[:len(b)/2])
	w.(http.Flusher).Flush()
	select {
	case <-h.rest:
	case <-r.Context().Done():
	}
	_, _ = w.Write(b[len(b)/2:])
}

func (h *halves) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := h.client.RoundTrip(r)
	if h.receive(r) {
		close(h.half)
	}
	return res, err
}

// openHalves opens a queue on a real connection to such a service.
func openHalves(t *testing.T) (*Queue, *halves, *fakesqs.Server) {
	fake := fakesqs.New(fakesqs.Options{})
	h := &halves{
		fake: fake, half: make(chan struct{}), rest: make(chan struct{}), client: &http.Transport{},
		receive: func(r *http.Request) bool { return strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".ReceiveMessage") },
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(h.client.(*http.Transport).CloseIdleConnections)
	client := awssqs.NewFromConfig(aws.Config{
		Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: &http.Client{Transport: h},
		Credentials: credentials.NewStaticCredentialsProvider("semel", "semel", ""),
	})
	if _, err := Create(t.Context(), client, "orders", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q, err := Open(t.Context(), client, "orders", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Send(t.Context(), driver.Message{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	return q, h, fake
}

// TestFM64_CancelledWhileTheResponseComes: a receive that is cancelled after its response has begun returns the messages,
// and the draining worker returns them to the queue. Otherwise they would stay hidden until their visibility ends.
func TestFM64_CancelledWhileTheResponseComes(t *testing.T) {
	q, h, fake := openHalves(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-h.half
		cancel()
		close(h.rest)
	}()
	ds, err := q.Receive(ctx, 10)
	if err != nil || len(ds) != 1 || ds[0].ID != "m" {
		t.Fatalf("received %v, %v", ds, err)
	}
	out, err := q.Settle(t.Context(), driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Defer})
	if visible, flying, _ := fake.Count("orders"); err != nil || out[0] != driver.Applied || visible != 1 || flying != 0 {
		t.Errorf("returned: %v, %v; %d visible, %d in flight", out, err, visible, flying)
	}
}

// TestFM64_CancelledBeforeTheResponseComes: on a busy queue a response is always on its way when a worker stops. The receive
// waits for it, but no longer than a fifth of a second.
func TestFM64_CancelledBeforeTheResponseComes(t *testing.T) {
	for took, want := range map[time.Duration]int{50 * time.Millisecond: 1, time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			f := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{
				{Operation: "ReceiveMessage", Call: 1, Kind: awstest.Delay, Done: true, By: took},
			}})
			b := newBench(t, setup{wrap: wrapOf(f)})
			b.send(driver.Message{ID: "m"})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			began := time.Now()
			ds, err := b.q.Receive(ctx, 1)
			if len(ds) != want || (err == nil) != (want == 1) || time.Since(began) > 210*time.Millisecond {
				t.Errorf("a response that took %v: received %v, %v after %v", took, ds, err, time.Since(began))
			}
		})
	}
}

// TestResponseThatStopsHalfway: a receive does not wait endlessly for the rest of a response.
func TestResponseThatStopsHalfway(t *testing.T) {
	t.Parallel()
	q, h, _ := openHalves(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-h.half
		cancel()
	}()
	done := make(chan error)
	go func() {
		_, err := q.Receive(ctx, 10)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("received with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a cancelled receive waits a minute for the rest of its response")
	}
}

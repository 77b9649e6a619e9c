package awstest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

func request(ctx context.Context, t *testing.T, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://fake.test/path?q=1", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLocalCarriesRequestsAndResponses(t *testing.T) {
	rt := awstest.Local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) || r.RequestURI != "/path?q=1" || r.Host != "fake.test" {
			t.Errorf("the handler sees %v %d %s %s", err, r.ContentLength, r.RequestURI, r.Host)
		}
		w.Header().Set("X-Seen", string(b))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	}))
	got, err := rt.RoundTrip(request(t.Context(), t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(got.Body)
	if err = errors.Join(err, got.Body.Close()); err != nil || string(b) != "short and stout" || got.Header.Get("X-Seen") != "hello" {
		t.Errorf("%q %v %v", b, got.Header, err)
	}
	if got.StatusCode != http.StatusTeapot || got.Status != "418 I'm a teapot" {
		t.Errorf("status %d %q", got.StatusCode, got.Status)
	}
}

// An abandoned request gets no response, even if the handler writes one at that moment. A request that was abandoned before
// it was sent is not carried out.
func TestLocalAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ctx, cancel := context.WithCancel(t.Context())
		rt := awstest.Local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls++
			cancel()
			_, _ = io.WriteString(w, "done")
			<-r.Context().Done()
		}))
		for range 2 {
			got, err := rt.RoundTrip(request(ctx, t, "hello"))
			if !errors.Is(err, context.Canceled) {
				_ = got.Body.Close()
				t.Fatalf("got %v, %v; want that it was abandoned", got, err)
			}
			synctest.Wait()
		}
		if calls != 1 {
			t.Errorf("carried out %d times, want 1", calls)
		}
	})
}

package attack

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

func ask(t *testing.T, method, url, key, body string) (status int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func newService(t *testing.T) *service {
	t.Helper()
	s, err := listen("127.0.0.1:0", "Idempotency-Key")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestServiceKeepsKeys: what counts as an effect, and what as a repeat.
func TestServiceKeepsKeys(t *testing.T) {
	s := newService(t)
	c := s.open("attack-1", map[string]string{"k1": "k1", "k2": "k2"})
	at := s.url + "/attack-1"
	for _, r := range []struct {
		method, path, key, body string
		kind, of                string
		applied                 bool
	}{
		{"POST", "/charges", "a", "k1", "POST /charges", "k1", true},
		{"POST", "/charges", "a", "k1", "POST /charges", "k1", false},
		{"POST", "/refunds", "a", "k1", "POST /refunds", "k1", true},
		{"POST", "/charges", "", "k2", "POST /charges", "k2", true},
		{"POST", "/charges", "", "k2", "POST /charges", "k2", true},
		{"PUT", "/orders/k2", "", "1", "PUT /orders/{key}", "k2", true},
		{"PUT", "/orders/k2", "", "1", "PUT /orders/{key}", "k2", false},
		{"PUT", "/orders/k2", "", "2", "PUT /orders/{key}", "k2", true},
		{"DELETE", "/v1/orders/123", "", "", "DELETE /v1/orders/{id}", "", true},
	} {
		if status, err := ask(t, r.method, at+r.path, r.key, r.body); err != nil || status != 200 {
			t.Fatalf("%+v: %d, %v", r, status, err)
		}
		all := s.got(c)
		if e := all[len(all)-1]; e.applied != r.applied || e.repeat == r.applied || e.Name != r.kind || e.Message != r.of {
			t.Errorf("%+v: %+v", r, e)
		}
	}
	for path, want := range map[string]int{"/charges/a": 200, "/charges/b": 404, "/orders/k2": 200, "/": 404} {
		if status, err := ask(t, "GET", at+path, "", ""); err != nil || status != want {
			t.Errorf("GET %s: %d, %v, want %d", path, status, err, want)
		}
	}
}

// TestServiceFaults: each fault does what it says, once, and to the request that it is for.
func TestServiceFaults(t *testing.T) {
	s := newService(t)
	for name, x := range map[string]struct {
		f       fault
		status  int // 0 = the connection breaks
		applied bool
	}{
		"cut":        {fault{at: 2, cut: true}, 0, true},
		"cut before": {fault{at: 2, cut: true, skip: true}, 0, false},
		"500":        {fault{at: 2, status: 500}, 500, true},
		"429 before": {fault{at: 2, status: 429, skip: true}, 429, false},
	} {
		c := s.open(name, nil)
		s.plan(c, x.f)
		for i, want := range []int{200, x.status, 200} {
			if status, err := ask(t, "POST", s.url, "", "body"); status != want || (err == nil) != (want > 0) {
				t.Errorf("%s: request %d: %d, %v, want %d", name, i+1, status, err, want)
			}
		}
		if all := s.got(c); len(all) != 3 || !all[0].applied || all[1].applied != x.applied || !all[2].applied {
			t.Errorf("%s: %+v", name, all)
		}
		select {
		case <-c.struck:
		default:
			t.Errorf("%s did not strike", name)
		}
	}
}

// TestServiceHolds: a request that is held is applied when it is released, and not when its client has gone.
func TestServiceHolds(t *testing.T) {
	s := newService(t)
	c := s.open("held", nil)
	s.plan(c, fault{at: 1, hold: true}, fault{at: 2, hold: true})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	impatient, left := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, make(chan error)
	go func() {
		res, err := impatient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		left <- err
	}()
	<-c.struck
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v although the request was held", err)
	}
	for !s.got(c)[0].gone {
		time.Sleep(time.Millisecond) // the pause between two looks
	}
	done := make(chan int)
	go func() {
		status, _ := ask(t, "POST", s.url, "", "")
		done <- status
	}()
	<-c.struck
	close(c.released)
	if status := <-done; status != 200 {
		t.Errorf("status %d", status)
	}
	if all := s.got(c); len(all) != 2 || all[0].applied || !all[1].applied {
		t.Errorf("%+v", all)
	}
}

// TestServiceRefusesRepeats: the fault for repeats strikes every one of them, and nothing else.
func TestServiceRefusesRepeats(t *testing.T) {
	s := newService(t)
	c := s.open("repeats", nil)
	s.plan(c, fault{skip: true, status: 409})
	for i, want := range []int{200, 409, 409} {
		if status, err := ask(t, "POST", s.url, "key", ""); err != nil || status != want {
			t.Errorf("request %d: %d, %v", i+1, status, err)
		}
	}
	if status, err := ask(t, "POST", s.url, "", ""); err != nil || status != 200 {
		t.Errorf("without key: %d, %v", status, err)
	}
}

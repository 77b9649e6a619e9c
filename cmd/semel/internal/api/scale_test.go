package api

import (
	"net/http"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestS4_20Scale: the backlog, by worker and in workers, as autoscalers ask for it.
func TestS4_20Scale(t *testing.T) {
	c := serve(t, nil)
	var ms []driver.Message
	for range 250 {
		ms = append(ms, driver.Message{Body: []byte("x")})
	}
	if err := c.db.Queue("orders").Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.db.Queue("orders").Receive(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]map[string]any{
		"":                           {"queue": "orders", "backlog": 250.0, "visible": 200.0, "in_flight": 50.0, "delayed": 0.0},
		"?workers=4":                 {"backlog_per_worker": 62.5},
		"?per_worker=100":            {"desired_workers": 3.0},
		"?workers=1&per_worker=1000": {"backlog_per_worker": 250.0, "desired_workers": 1.0},
	} {
		status, got := c.do("GET", "/v1/scale"+query, "")
		if status != http.StatusOK {
			t.Errorf("%s: status %d", query, status)
		}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s is %v, want %v", query, name, got[name], v)
			}
		}
		if query == "" && (got["backlog_per_worker"] != nil || got["desired_workers"] != nil) {
			t.Errorf("got figures that were not asked for: %v", got)
		}
	}
	for _, query := range []string{"?workers=0", "?workers=-1", "?per_worker=x", "?per_worker=1e3", "?workers=99999999999999999999"} {
		if status, got := c.do("GET", "/v1/scale"+query, ""); status != http.StatusBadRequest {
			t.Errorf("%s: status %d, %v", query, status, got)
		}
	}
	if status, _ := c.do("POST", "/v1/scale", "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", status)
	}
}

// TestReadOnly: a worker's port shows how it is, and takes no orders.
func TestReadOnly(t *testing.T) {
	c := serve(t, func(s *Server) { s.ReadOnly = true })
	for path, want := range map[string]int{"/enqueue": 404, "/v1/claim": 404, "/v1/release": 404} {
		if status, _ := c.do("POST", path, `{"key":"a"}`); status != want && status != 405 {
			t.Errorf("POST %s: status %d", path, status)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/v1/scale"} {
		if status, _ := c.do("GET", path, ""); status != http.StatusOK {
			t.Errorf("GET %s: status %d", path, status)
		}
	}
	if st, err := c.db.Queue("orders").Stats(t.Context()); err != nil || st.Visible != 0 {
		t.Errorf("something was sent: %+v, %v", st, err)
	}
}

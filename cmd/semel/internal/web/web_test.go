package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHosts asserts which names a server has.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		listen, allow, host string
		want                bool
	}{
		{"127.0.0.1:8080", "", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "", "localhost:18080", true}, // before a proxy or a forwarded port
		{"127.0.0.1:8080", "", "LOCALHOST.", true},
		{"127.0.0.1:8080", "", "[::1]:8080", true},
		{"127.0.0.1:8080", "", "127.8.9.1", true},
		{"127.0.0.1:8080", "", "[::ffff:127.0.0.1]:8080", true},
		{"127.0.0.1:8080", "", "", true}, // HTTP/1.0
		{"127.0.0.1:8080", "", "evil.example:8080", false},
		{"127.0.0.1:8080", "", "localhost.evil.example", false},
		{"127.0.0.1:8080", "", "127.0.0.1.evil.example", false},
		{"127.0.0.1:8080", "", "192.168.1.5:8080", false},
		{"127.0.0.1:8080", "semel, Semel.Example.Com", "semel.example.com:80", true},
		{"127.0.0.1:8080", "semel,", "semel", true},
		{"127.0.0.1:8080", "semel", "semel.evil.example", false},
		{"192.168.1.5:8080", "", "192.168.1.5:8080", true},
		{"192.168.1.5:8080", "", "192.168.1.6:8080", false},
		{"host.example:8080", "", "host.example:8080", true},
		{"0.0.0.0:8080", "", "192.168.1.5:8080", true}, // all addresses: a name can be made to point here, an address cannot
		{":8080", "", "[fe80::1]:8080", true},
		{":8080", "", "evil.example:8080", false},
		{"[::]:8080", "worker", "worker:8080", true},
		{"", "", "127.0.0.1", true},
		{"", "", "evil.example", false},
	} {
		if got := NewHosts(c.listen, c.allow).has(c.host); got != c.want {
			t.Errorf("--listen %q --allow-host %q: Host %q: %t, want %t", c.listen, c.allow, c.host, got, c.want)
		}
	}
	if (Hosts{}).has("evil.example") || !(Hosts{}).has("localhost") {
		t.Error("zero Hosts are not those of the loopback interface")
	}
}

// TestGuardRefusesForeignPages asserts that a page of another origin changes nothing, under its own name (DNS rebinding) or
// under ours.
func TestGuardRefusesForeignPages(t *testing.T) {
	for _, c := range []struct {
		method, host string
		head         []string
		want         int
	}{
		{"POST", "127.0.0.1:80", nil, 200},
		{"POST", "127.0.0.1:80", []string{"Sec-Fetch-Site", "none"}, 200},
		{"POST", "127.0.0.1:80", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", "127.0.0.1:80", []string{"Origin", "http://127.0.0.1:80"}, 200},
		{"POST", "127.0.0.1:80", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "127.0.0.1:80", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"PUT", "127.0.0.1:80", []string{"Origin", "http://evil.example"}, 403},
		{"DELETE", "127.0.0.1:80", []string{"Origin", "null"}, 403},
		{"POST", "127.0.0.1:80", []string{"Origin", "http://127.0.0.1:8000"}, 403},
		{"GET", "127.0.0.1:80", []string{"Sec-Fetch-Site", "cross-site"}, 200}, // changes nothing, and the page cannot read it
		{"POST", "evil.example:80", []string{"Origin", "http://evil.example:80"}, 421},
		{"POST", "evil.example:80", []string{"Sec-Fetch-Site", "same-origin"}, 421},
		{"GET", "evil.example:80", nil, 421},
	} {
		h := Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), NewHosts("127.0.0.1:80", ""),
			func(w http.ResponseWriter, _ *http.Request, r Refusal) { w.WriteHeader(r.Status) })
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = c.host
		for i := 0; i < len(c.head); i += 2 {
			r.Header.Set(c.head[i], c.head[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s of %s %v: %d, want %d", c.method, c.host, c.head, w.Code, c.want)
		}
	}
}

// TestServerHasBounds asserts that no client can hold a connection forever.
func TestServerHasBounds(t *testing.T) {
	s := Server(http.NotFoundHandler(), nil)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", s)
	}
}

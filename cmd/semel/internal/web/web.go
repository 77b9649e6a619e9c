// Package web has what all HTTP servers of the binary share: the check of Host and Origin, timeouts, and a bound of connections.
//
// None of these servers has a password, and a browser on the same machine reaches a loopback address. Two checks keep foreign
// web pages out. The Host of a request must be a name of the server: after DNS rebinding a browser sends the attacker's name.
// A request that may change something must not come from another origin.
package web

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// The bounds of every server.
const (
	readTimeout = time.Minute
	// writeTimeout is longer than the longest work for one request: a long poll of SQS waits for 20 seconds.
	writeTimeout = 2 * time.Minute
	idleTimeout  = 2 * time.Minute
	// maxConnections are open at once; further clients wait until one is closed.
	maxConnections = 1000
)

// Server makes a server with the bounds that every server has. Errors of connections go to log; nil: nowhere.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Listen opens an address (HOST:PORT). One that is taken or not this machine's is an error like a place that cannot be opened.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	}
	if err != nil {
		return nil, output.Usage("the address %q: %w", address, err).WithHint("HOST:PORT, such as 127.0.0.1:7070")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, output.Unreachable("%w", err).WithHint("another port, or :0 for a free one")
	}
	return l, nil
}

// Hosts are the names of a server: whatever is on the loopback interface, the host that it listens on, and those that the
// user allows.
type Hosts struct {
	names []string
	// anyIP: the server listens on all addresses. A name can be made to point at it, an address cannot.
	anyIP bool
}

// NewHosts returns the names of a server that listens on an address (HOST:PORT). allow lists more, separated by commas.
func NewHosts(listen, allow string) Hosts {
	var h Hosts
	host, _, err := net.SplitHostPort(listen)
	if ip, perr := netip.ParseAddr(host); err == nil && (host == "" || perr == nil && ip.IsUnspecified()) {
		h.anyIP = true
	} else if err == nil {
		h.names = append(h.names, normal(host))
	}
	for name := range strings.SplitSeq(allow, ",") {
		if name = strings.TrimSpace(name); name != "" {
			h.names = append(h.names, normal(name))
		}
	}
	return h
}

// normal is a host as names are compared: without port, brackets and final dot, in lower case.
func normal(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// has reports that a Host header names the server. Its port does not matter: it may be another one before a proxy.
func (h Hosts) has(host string) bool {
	if host == "" { // HTTP/1.0 (probes of load balancers): no browser leaves it out
		return true
	}
	host = normal(host)
	if ip, err := netip.ParseAddr(host); err == nil && (h.anyIP || ip.Unmap().IsLoopback()) {
		return true
	}
	return host == "localhost" || slices.Contains(h.names, host)
}

// Refusal says why a request is refused. Each server writes it in its own form.
type Refusal struct {
	Status        int
	Code, Message string
}

// Guard refuses requests whose Host is no name of the server, and requests of another origin that may change something.
// GET, HEAD and OPTIONS must change nothing.
func Guard(h http.Handler, hosts Hosts, refuse func(http.ResponseWriter, *http.Request, Refusal)) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts.has(r.Host) {
			refuse(w, r, Refusal{http.StatusMisdirectedRequest, "unknown_host",
				"Host names another server: use the address that this one listens on, or start it with --allow-host"})
			return
		}
		if origin.Check(r) != nil {
			refuse(w, r, Refusal{http.StatusForbidden, "cross_origin", "a page of another origin may not do this"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Limit bounds how many connections of a listener are open at once.
func Limit(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConnections) }

// Package console is a web console for the operators of one queue and its record store. It shows what needs a person and what
// is stuck, explains what happened to a key, decides keys whose outcome is unknown, and redrives dead letters.
//
// Pages are rendered on the server, work without a script, and load nothing from elsewhere. With "Accept: application/json"
// each page returns its content as JSON. Each operation is also a command of semel, with the same result.
package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/ops"
)

// Config configures a console. All fields but Operate and Bodies are required.
type Config struct {
	Queue driver.Queue
	Store driver.Store
	Box   ops.Queue
	// Consumer is the scope of the keys.
	Consumer string
	// CLI makes the commands that pages propose.
	CLI *ops.CLI
	// Keep is how long a record is kept that an operation leaves in a state.
	Keep func(driver.State) (time.Duration, error)
	// By is who does operations, for the audit log.
	By string
	// Operate allows operations; otherwise the console only shows. Bodies shows the bodies of messages.
	Operate, Bodies bool
	// Token signs in: a browser by ?token=, a program as a bearer token.
	Token string
	// Hosts are the names of the server.
	Hosts web.Hosts
	// Log gets a line with audit=true for each operation, each look at a body and each refused request.
	Log *slog.Logger
}

// Console serves HTTP requests, concurrently. Close ends the redrives that it runs.
type Console struct {
	Config

	ctx    context.Context // of the redrives
	cancel context.CancelFunc
	runs   runs
}

// New makes a console.
func New(cfg Config) *Console {
	c := &Console{Config: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close stops the redrives that the console runs, and waits for them.
func (c *Console) Close() {
	c.cancel()
	c.runs.wait.Wait()
}

// pageTimeout bounds the reads of one page.
const pageTimeout = 5 * time.Second

// Handler serves the pages.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", c.page("overview", c.overview))
	mux.Handle("GET /key", c.page("key", c.key))
	mux.Handle("GET /dead-letters", c.page("deadletters", c.deadLetters))
	mux.Handle("GET /dead-letter", c.page("deadletter", c.deadLetter))
	mux.Handle("GET /redrives/{run}", c.page("redrive", c.redrive))
	mux.Handle("GET /audit-log", c.page("auditlog", c.auditLog))
	mux.Handle("POST /key", c.operation("key", c.changeKey))
	mux.Handle("POST /plan", c.operation("plan", c.plan))
	mux.Handle("POST /redrives", c.operation("redrive", c.startRedrive))
	mux.Handle("POST /redrives/{run}/stop", c.operation("redrive", c.stopRedrive))
	mux.Handle("POST /discard", c.operation("discarded", c.discard))
	mux.HandleFunc("GET /console.css", asset("text/css; charset=utf-8", look.CSS+styleSheet))
	mux.HandleFunc("GET /console.js", asset("text/javascript; charset=utf-8", script))
	return c.secured(mux)
}

func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text))
	}
}

// secured sets the headers of every response, refuses foreign hosts and origins, and serves only who is signed in.
func (c *Console) secured(h http.Handler) http.Handler {
	guarded := web.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case c.signIn(w, r):
		case !c.signedIn(r):
			c.refuse(w, r, http.StatusForbidden, "not signed in: open the address with ?token= that was printed at the start")
		default:
			h.ServeHTTP(w, r)
		}
	}), c.Hosts, func(w http.ResponseWriter, r *http.Request, why web.Refusal) { c.refuse(w, r, why.Status, why.Message) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.PageHeaders(w.Header(), "'self'")
		guarded.ServeHTTP(w, r)
	})
}

const cookieName = "semel-console"

// cookie is what a browser sends instead of the token, so that the token does not stay in it.
func (c *Console) cookie() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte("semel console\x00"+c.Token)))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signIn redirects a browser that has the token to the same page without it.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	if !q.Has("token") || r.Method != http.MethodGet || !same(q.Get("token"), c.Token) {
		return false
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: c.cookie(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	q.Del("token")
	to := "/" + strings.TrimLeft(r.URL.Path, "/") // never another host
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return true
}

func (c *Console) signedIn(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, c.Token)
	}
	k, err := r.Cookie(cookieName)
	return err == nil && same(k.Value, c.cookie())
}

// refuse writes an error, and one line to the log.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	c.Log.WarnContext(r.Context(), "refused", "audit", true, "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "why", why)
	c.fail(w, r, status, why)
}

// statusError is an error with a status of HTTP.
type statusError struct {
	status int
	error
}

func refusal(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

// loader makes the content of a page.
type loader func(*http.Request) (any, error)

// page serves what load returns.
func (c *Console) page(name string, load loader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		c.serve(w, r.WithContext(ctx), name, load)
	})
}

// operation serves what do returns, if operations are allowed.
func (c *Console) operation(name string, do loader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.Operate {
			c.refuse(w, r, http.StatusForbidden, "this console only shows: start it with --operate to allow operations")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, "the form cannot be read: "+err.Error())
			return
		}
		c.Log.InfoContext(r.Context(), "operation", "audit", true, "by", c.By, "remote", r.RemoteAddr, "path", r.URL.Path,
			"reason", r.PostForm.Get("reason"))
		c.serve(w, r, name, do)
	})
}

func (c *Console) serve(w http.ResponseWriter, r *http.Request, name string, load loader) {
	v, err := load(r)
	if err == nil {
		c.show(w, r, http.StatusOK, name, v)
		return
	}
	status := http.StatusBadGateway
	if s := (*statusError)(nil); errors.As(err, &s) {
		status = s.status
	} else {
		c.Log.ErrorContext(r.Context(), "console", "path", r.URL.Path, "error", err)
	}
	c.fail(w, r, status, err.Error())
}

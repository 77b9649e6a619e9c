// Package console is a web console for the operators of one queue and its record store. It shows what needs a person and what
// is stuck, explains what happened to a key, decides keys whose outcome is unknown, and redrives dead letters.
//
// It is an [http.Handler] for a service of your own, behind your login: it has none. The command semel console serves it, too.
// Pages are rendered on the server, work without a script, and load nothing from elsewhere. With "Accept: application/json"
// each page returns its content as JSON. Each operation is also one of package ops, with the same result.
package console

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/ops"
)

// Config configures a console. Queue and Store are required.
type Config struct {
	Queue driver.Queue
	Store driver.Store
	// Consumer is the scope of the keys. Defaults to the queue's name.
	Consumer string
	// Path is where the console is mounted, without a slash at its end: "/semel" for http.Handle("/semel/", console). Requests
	// have the whole path. Defaults to "", the root.
	Path string
	// CLI makes the commands that pages propose. Defaults to none.
	CLI *ops.CLI
	// Keep is how long a record is kept that an operation leaves in a state. Defaults to [ops.RetentionFor] of the queue.
	Keep func(driver.State) (time.Duration, error)
	// By names who sent a request, for the audit log. Defaults to "console": set it where operations are allowed.
	By func(*http.Request) string
	// Operator reports whether who sent a request may operate; others may only look. Defaults to nobody.
	Operator func(*http.Request) bool
	// Bodies shows the bodies of messages.
	Bodies bool
	// Checks are further checks for the page of the guarantee. Defaults to none.
	Checks func(context.Context) ([]ops.Check, error)
	// Log gets a line with audit=true for each operation, each look at a body and each refused request. Defaults to
	// slog.Default().
	Log *slog.Logger
}

// Console serves HTTP requests, concurrently. Close ends the redrives that it runs.
type Console struct {
	cfg     Config
	queue   ops.Queue
	handler http.Handler

	ctx      context.Context // of the redrives
	cancel   context.CancelFunc
	runs     runs
	refusals refusals
}

// New makes a console. The error names the field of Config that is missing, or wraps [driver.ErrUnsupported] if dead letters of the
// queue or records of the store cannot be worked on.
func New(cfg Config) (*Console, error) {
	if cfg.Queue == nil || cfg.Store == nil {
		return nil, errors.New("console: Config.Queue or Config.Store is missing: set both")
	}
	if cfg.Path != "" && (cfg.Path[0] != '/' || strings.HasSuffix(cfg.Path, "/")) {
		return nil, fmt.Errorf("console: Config.Path is %q: begin with a slash, and end without", cfg.Path)
	}
	queue, err := ops.NewQueue(cfg.Queue, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	queue.CLI = cfg.CLI
	if cfg.Consumer == "" {
		cfg.Consumer = queue.Name
	}
	if cfg.Keep == nil {
		cfg.Keep = func(driver.State) (time.Duration, error) { return ops.RetentionFor(queue.Horizon), nil }
	}
	if cfg.By == nil {
		cfg.By = func(*http.Request) string { return "console" }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Console{cfg: cfg, queue: queue}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.handler = c.routes()
	return c, nil
}

// Close stops the redrives that the console runs, and waits for them. It writes the refused requests of the last minute.
func (c *Console) Close() {
	c.cancel()
	c.runs.wait.Wait()
	c.writeRefusals()
}

// pageTimeout bounds the reads of one page.
const pageTimeout = 5 * time.Second

// ServeHTTP serves the pages. A request that a page of another origin sends, and that may change something, is refused.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	look.Headers(w.Header(), "'self'")
	if http.NewCrossOriginProtection().Check(r) != nil {
		c.Refuse(w, r, http.StatusForbidden, "a page of another origin may not do this")
		return
	}
	c.handler.ServeHTTP(w, r)
}

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, h http.Handler) { mux.Handle(method+" "+c.cfg.Path+path, h) }
	handle("GET", "/{$}", c.page("overview", c.overview))
	handle("GET", "/key", c.page("key", c.key))
	handle("GET", "/dead-letters", c.page("deadletters", c.deadLetters))
	handle("GET", "/dead-letter", c.page("deadletter", c.deadLetter))
	handle("GET", "/redrives/{run}", c.page("redrive", c.redrive))
	handle("GET", "/audit-log", c.page("auditlog", c.auditLog))
	handle("GET", "/workers", c.page("workers", c.workers))
	handle("GET", "/guarantee", c.page("guarantee", c.guarantee))
	handle("POST", "/key", c.operation("key", c.changeKey))
	handle("POST", "/plan", c.operation("plan", c.plan))
	handle("POST", "/redrives", c.operation("redrive", c.startRedrive))
	handle("POST", "/redrives/{run}/stop", c.operation("redrive", c.stopRedrive))
	handle("POST", "/discard", c.operation("discarded", c.discard))
	handle("GET", "/console.css", asset("text/css; charset=utf-8", look.CSS+styleSheet))
	handle("GET", "/console.js", asset("text/javascript; charset=utf-8", script))
	return mux
}

func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text))
	}
}

// operator reports whether who sent a request may operate.
func (c *Console) operator(r *http.Request) bool { return c.cfg.Operator != nil && c.cfg.Operator(r) }

// Refuse writes an error page, and a line with audit=true to the log: for a login before the console. If the console allows
// operations, the request is also in the audit log of a store that is a [driver.RefusalLog].
func (c *Console) Refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	c.refused(r, why)
	c.cfg.Log.WarnContext(r.Context(), "refused", "audit", true, "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "why", why)
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
type loader func(*http.Request) (view, error)

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
		if !c.operator(r) {
			why := "this console only shows: start it with --operate (Config.Operator) to allow operations"
			if c.cfg.Operator != nil {
				why = "you may only look: sign in as an operator"
			}
			c.Refuse(w, r, http.StatusForbidden, why)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, "the form cannot be read: "+err.Error())
			return
		}
		c.cfg.Log.InfoContext(r.Context(), "operation", "audit", true, "by", c.cfg.By(r), "remote", r.RemoteAddr, "path", r.URL.Path,
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
		c.cfg.Log.ErrorContext(r.Context(), "console", "path", r.URL.Path, "error", err)
	}
	c.fail(w, r, status, err.Error())
}

//go:embed assets/console.css
var styleSheet string

//go:embed assets/console.js
var script string

type errorView struct {
	Status int    `json:"-"`
	Error  string `json:"error"`
}

func (c *Console) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	c.show(w, r, status, "error", errorView{status, why})
}

// show writes a page, as JSON if the client wants that. It never writes half of one.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	var body []byte
	kind := "text/html; charset=utf-8"
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			c.cfg.Log.ErrorContext(r.Context(), "console", "page", name, "error", err)
			http.Error(w, fmt.Sprintf("page %s could not be made: the log has the reason", name), http.StatusInternalServerError)
			return
		}
		kind, body = "application/json; charset=utf-8", b.Bytes()
	} else {
		body = []byte(visit{c, c.operator(r)}.frame(name, v))
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/ops"
)

// fixture is a console on a queue in memory, over HTTP.
type fixture struct {
	t    *testing.T
	db   *memory.DB
	q    *memory.Queue
	c    *Console
	http *httptest.Server
	log  *strings.Builder
}

func start(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, db: memory.Open(), log: &strings.Builder{}}
	f.q = f.db.Queue("orders")
	cfg := Config{
		Queue: f.q, Store: f.db.Store(), CLI: &ops.CLI{Store: "mem:"}, By: func(r *http.Request) string { return r.Header.Get("X-User") },
		Operator: func(r *http.Request) bool { return r.Header.Get("X-User") != "viewer" }, Log: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if f.c, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	f.http = httptest.NewServer(f.c)
	t.Cleanup(func() { f.http.Close(); f.c.Close() })
	return f
}

// work runs a consumer for the messages that are in the queue.
func (f *fixture) work(h func(*semel.Attempt) error) {
	f.t.Helper()
	held, err := f.q.Stats(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := semel.New(semel.Config{
		Queue: f.q, Store: f.db.Store(), MaxAttempts: 1, Logger: slog.New(slog.DiscardHandler), Limit: int(held.Visible),
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return h(a) }),
	})
	if err == nil {
		err = c.Run(f.t.Context())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) send(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if err := f.q.Send(f.t.Context(), semel.Message{ID: id, Body: []byte(`<script>alert("body")</script>`)}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// do makes a request of the user yui.
func (f *fixture) do(method, path string, form url.Values, change func(*http.Request)) (status int, body string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.http.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("X-User", "yui")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// ask makes a request for JSON that must succeed.
func ask[T any](f *fixture, method, path string, form url.Values) (v T) {
	f.t.Helper()
	status, body := f.do(method, path, form, func(r *http.Request) { r.Header.Set("Accept", "application/json") })
	if status != http.StatusOK {
		f.t.Fatalf("%s %s: %d %s", method, path, status, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}
	return v
}

func fails(*semel.Attempt) error {
	return semel.Permanent(errors.New("card endpoint 503 for order 17"))
}
func works(*semel.Attempt) error { return nil }

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("order-", i))
	}
	return out
}

// redriven waits for the end of a redrive.
func (f *fixture) redriven(id string) run {
	f.t.Helper()
	f.c.runs.wait.Wait()
	return ask[run](f, http.MethodGet, "/redrives/"+id, nil)
}

// TestRedrive finds the group of dead letters, plans its redrive, and redrives it.
func TestRedrive(t *testing.T) {
	f := start(t, nil)
	f.send(names(12)...)
	f.work(fails)
	o := ask[overviewView](f, http.MethodGet, "/", nil)
	if o.Level != "warn" || len(o.DeadLetters.Groups) != 1 || o.DeadLetters.Total != 12 || o.DeadLetters.Groups[0].Class != "card endpoint # for order #" {
		t.Fatalf("%+v", o)
	}
	group := url.Values{"kind": {"failed"}, "group": {o.DeadLetters.Groups[0].Class}}
	plan := ask[planView](f, http.MethodPost, "/plan", group)
	if plan.Total != 12 || plan.Canary != 3 || plan.Mode != "skip" || plan.Redriven != 12 || len(plan.IDs) != 12 {
		t.Fatalf("%+v", plan)
	}
	if s, _ := f.q.Stats(t.Context()); s.Visible != 0 || s.DeadLetters != 12 {
		t.Fatalf("the plan changed something: %+v", s)
	}
	form := url.Values{"id": plan.IDs, "mode": {plan.Mode}, "rate": {"0"}, "canary": {"0"}, "reason": {"PSP is up"}}
	got := f.redriven(ask[run](f, http.MethodPost, "/redrives", form).ID)
	if got.Done != 12 || got.Redriven != 12 || got.Ended.IsZero() || got.Stopped != "" {
		t.Fatalf("%+v", got)
	}
	f.work(works)
	if o = ask[overviewView](f, http.MethodGet, "/", nil); o.Level != "good" || len(o.Operations) != 8 || o.Operations[0].Reason != "redriven by yui: PSP is up" || o.Operations[0].By != "yui" {
		t.Fatalf("%+v", o)
	}
	if k := ask[keyView](f, http.MethodGet, "/key?k=order-3", nil); k.State != "COMPLETED" || k.Generation != 2 {
		t.Errorf("%+v", k)
	}
}

// TestRedriveStops stops a redrive that waits for its canary: the others are unchanged.
func TestRedriveStops(t *testing.T) {
	f := start(t, nil)
	f.send(names(5)...)
	f.work(fails)
	form := url.Values{"kind": {"failed"}, "canary": {"2"}, "reason": {"try"}}
	id := ask[run](f, http.MethodPost, "/redrives", form).ID
	if status, body := f.do(http.MethodPost, "/redrives", form, nil); status != http.StatusConflict {
		t.Errorf("a second redrive beside: %d %s", status, body)
	}
	_ = ask[run](f, http.MethodPost, "/redrives/"+id+"/stop", nil)
	if got := f.redriven(id); got.Stopped != "it was stopped" || got.Redriven > 2 {
		t.Errorf("%+v", got)
	}
	if s, _ := f.q.Stats(t.Context()); s.DeadLetters < 3 {
		t.Errorf("%+v", s)
	}
}

// TestResolve decides a key whose outcome is unknown, from its page, once.
func TestResolve(t *testing.T) {
	f := start(t, nil)
	f.send("order-1")
	f.work(func(*semel.Attempt) error { return semel.Park(errors.New("timeout after the request was sent")) })
	k := ask[keyView](f, http.MethodGet, "/key?k=order-1", nil)
	if k.State != "UNCERTAIN" || len(k.Can) != 3 || k.DeadLetter == "" {
		t.Fatalf("%+v", k)
	}
	if o := ask[overviewView](f, http.MethodGet, "/", nil); o.Headline != "The outcome of 1 key is unknown" || len(o.Uncertain) != 1 ||
		o.Uncertain[0].Raw != "order-1" || len(o.Next) != 1 {
		t.Errorf("%+v", o)
	}
	form := url.Values{
		"k": {"order-1"}, "token": {fmt.Sprint(k.Token)}, "generation": {"1"}, "as": {"completed"}, "result": {"ch_1"}, "reason": {"found at the PSP"},
	}
	for field, value := range map[string]string{"reason": "", "as": "done", "token": "7777", "generation": "2", "k": "order-2"} {
		bad := url.Values{}
		for name, v := range form {
			bad[name] = v
		}
		bad.Set(field, value)
		if status, body := f.do(http.MethodPost, "/key", bad, nil); status < 400 || status > 409 {
			t.Errorf("%s=%q: %d %s", field, value, status, body)
		}
	}
	if v := ask[keyView](f, http.MethodPost, "/key", form); v.State != "COMPLETED" || v.Done == "" {
		t.Errorf("%+v", v)
	}
	if v := ask[keyView](f, http.MethodPost, "/key", form); v.State != "COMPLETED" {
		t.Errorf("the same again: %+v", v)
	}
	form.Set("as", "failed")
	if status, _ := f.do(http.MethodPost, "/key", form, nil); status != http.StatusConflict {
		t.Errorf("another decision: %d", status)
	}
	if r, _, _ := f.db.Store().Record(t.Context(), driver.Key{Consumer: "orders", Raw: "order-1"}); string(r.Result) != "ch_1" {
		t.Errorf("%+v", r)
	}
}

// TestRefused: foreign origins and operations of a console that only shows are refused, and are in the log.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		config       func(*Config)
		change       func(*http.Request)
		status       int
	}{
		"foreign page":      {"POST", "/discard", nil, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"foreign, by fetch": {"POST", "/key", nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"read only":         {"POST", "/redrives", func(c *Config) { c.Operator = nil }, nil, http.StatusForbidden},
		"viewer":            {"POST", "/discard", nil, func(r *http.Request) { r.Header.Set("X-User", "viewer") }, http.StatusForbidden},
		"another method":    {"DELETE", "/key", nil, nil, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, c.config)
			f.send("order-1")
			f.work(fails)
			status, body := f.do(c.method, c.path, url.Values{"kind": {"failed"}, "reason": {"evil"}}, c.change)
			if status != c.status {
				t.Errorf("%d %s", status, body)
			}
			if s, _ := f.q.Stats(t.Context()); s.DeadLetters != 1 {
				t.Errorf("it was carried out: %+v", s)
			}
			if c.status != http.StatusMethodNotAllowed && !strings.Contains(f.log.String(), "msg=refused audit=true") {
				t.Errorf("not in the log: %s", f.log)
			}
		})
	}
}

// TestWorkers: the page shows who runs, what it holds and which settings differ, of this queue alone. Only keys of the console's
// consumer are links.
func TestWorkers(t *testing.T) {
	f := start(t, nil)
	for _, w := range []driver.WorkerReport{
		{ID: "1", Name: "a:1", Queue: "orders", Consumer: "orders", Seen: time.Now(), Holds: []driver.WorkerHold{{Key: "order-7"}}},
		{ID: "2", Name: "b:2", Queue: "orders", Consumer: "orders", Seen: time.Now(), Settings: map[string]string{"key": "id"}},
		{ID: "4", Name: "d:4", Queue: "orders", Consumer: "audit", Seen: time.Now(), Holds: []driver.WorkerHold{{Key: "order-8"}}},
		{ID: "3", Name: "c:3", Queue: "mails", Consumer: "mails", Seen: time.Now(), Settings: map[string]string{"key": "body"}},
	} {
		if err := f.db.Store().ReportWorker(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	v := ask[workersView](f, http.MethodGet, "/workers", nil)
	if !v.Kept || len(v.Workers) != 3 || len(v.Differ) != 2 || v.Differ[1].Setting != "key" {
		t.Errorf("%+v", v)
	}
	_, page := f.do(http.MethodGet, "/workers", nil, nil)
	for _, want := range []string{"a:1", `href="/key?k=order-7"`, "<code>order-8</code>", "differ in key"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if strings.Contains(page, "k=order-8") {
		t.Errorf("a key of consumer audit leads to a page of consumer orders: %s", page)
	}
}

// TestHostileText: markup and escape sequences in keys, reasons and bodies are text on every page.
func TestHostileText(t *testing.T) {
	const evil = `"><script>alert(1)</script>'&` + "\x1b[31m\u202e"
	f := start(t, func(c *Config) { c.Bodies = true })
	f.send(evil)
	f.work(func(*semel.Attempt) error { return semel.Permanent(errors.New(evil)) })
	ls, err := f.q.DeadLetters(t.Context(), 0)
	if err == nil {
		err = f.db.Store().ReportWorker(t.Context(), driver.WorkerReport{
			Name: evil, Queue: "orders", Consumer: evil, Version: evil, Settings: map[string]string{evil: evil}, Paused: evil, Guarantee: evil, Seen: time.Now(), Holds: []driver.WorkerHold{{Key: evil}},
		})
	}
	if err != nil || len(ls) != 1 {
		t.Fatal(ls, err)
	}
	k := url.QueryEscape(evil)
	pages := []struct {
		method, path string
		form         url.Values
	}{
		{"GET", "/", nil}, {"GET", "/dead-letters", nil}, {"GET", "/dead-letters?group=" + k, nil}, {"GET", "/dead-letter?id=" + ls[0].ID, nil},
		{"GET", "/dead-letter?id=" + k, nil}, {"GET", "/key?k=" + k, nil}, {"GET", "/key?k=missing" + k, nil},
		{"POST", "/plan", url.Values{"id": {ls[0].ID}}}, {"POST", "/plan", url.Values{"id": {ls[0].ID}, "mode": {evil}}},
		{"POST", "/key", url.Values{"k": {evil}, "as": {evil}}}, {"POST", "/redrives", url.Values{"id": {ls[0].ID}, "rate": {"0"}, "reason": {evil}}},
		{"GET", "/audit-log", nil}, {"GET", "/workers", nil}, {"GET", "/guarantee", nil},
	}
	for _, p := range pages {
		if _, body := f.do(p.method, p.path, p.form, nil); strings.Contains(body, "<script>alert") || strings.ContainsAny(body, "\x1b\u202e") {
			t.Errorf("%s %s: %s", p.method, p.path, body)
		}
		f.c.runs.wait.Wait()
	}
}

// TestBodiesHidden: bodies are shown only if the console shows bodies, and each look is in the log.
func TestBodiesHidden(t *testing.T) {
	for _, shows := range []bool{false, true} {
		f := start(t, func(c *Config) { c.Bodies = shows })
		f.send("order-1")
		f.work(fails)
		ls, err := f.q.DeadLetters(t.Context(), 0)
		if err != nil || len(ls) != 1 {
			t.Fatal(ls, err)
		}
		v := ask[deadLetterView](f, http.MethodGet, "/dead-letter?id="+ls[0].ID, nil)
		if (v.Body != "") != shows || strings.Contains(f.log.String(), "body shown") != shows || (v.Hidden == "") != shows {
			t.Errorf("shows bodies: %v: %+v, log %s", shows, v, f.log)
		}
	}
}

// TestMounted: every link, form and asset of a console below a path leads below that path.
func TestMounted(t *testing.T) {
	f := start(t, func(c *Config) { c.Path, c.Bodies = "/ops/semel", true })
	f.send(names(3)...)
	f.work(fails)
	ls, err := f.q.DeadLetters(t.Context(), 0)
	if err != nil || len(ls) != 3 {
		t.Fatal(ls, err)
	}
	if status, _ := f.do(http.MethodGet, "/dead-letters", nil, nil); status != http.StatusNotFound {
		t.Errorf("beside the path: %d", status)
	}
	links := regexp.MustCompile(`(?:href|src|action|formaction|data-at)="([^"]*)"`)
	one := url.Values{"id": {ls[0].ID}, "reason": {"try"}, "rate": {"0"}}
	for path, form := range map[string]url.Values{
		"/": nil, "/dead-letters": nil, "/dead-letter?id=" + ls[0].ID: nil, "/key?k=order-0": nil, "/audit-log": nil, "/workers": nil, "/guarantee": nil, "/key?k=none": nil,
		"/plan": one, "/redrives": one,
	} {
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		_, body := f.do(method, "/ops/semel"+path, form, nil)
		found := links.FindAllStringSubmatch(body, -1)
		for _, link := range found {
			if to := link[1]; !strings.HasPrefix(to, "/ops/semel/") && to != "data:," && to != "#main" {
				t.Errorf("%s leads to %q", path, to)
			}
		}
		if len(found) < 6 {
			t.Errorf("%s: %s", path, body)
		}
		f.c.runs.wait.Wait()
	}
}

// TestConfig: a console that cannot work is an error that names the field.
func TestConfig(t *testing.T) {
	db := memory.Open()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no queue":  {Config{Store: db.Store()}, "Config.Queue"},
		"no store":  {Config{Queue: db.Queue("q")}, "Config.Store"},
		"path":      {Config{Queue: db.Queue("q"), Store: db.Store(), Path: "semel/"}, "Config.Path"},
		"all it is": {Config{Queue: db.Queue("q"), Store: db.Store()}, ""},
	} {
		_, err := New(c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

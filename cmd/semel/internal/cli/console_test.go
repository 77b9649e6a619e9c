package cli

import (
	"context"
	"errors"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
)

// TestCommandsOfPages runs each command that a page of the console shows, as a shell reads it: it finds the key or the dead letter
// of the page, wherever the records are and whatever the consumer is.
func TestCommandsOfPages(t *testing.T) {
	for name, o := range map[string]consoleOptions{
		"one database":      {recordFlags: recordFlags{queue: "sqlite:q.db?queue=orders"}},
		"default queue":     {recordFlags: recordFlags{queue: "sqlite:q.db"}},
		"two databases":     {recordFlags: recordFlags{queue: "sqlite:q.db?queue=orders", store: "sqlite:r.db?queue=records"}},
		"consumer by name":  {recordFlags: recordFlags{queue: "sqlite:q.db?queue=orders", scopeFlags: scopeFlags{consumer: "the charge"}}},
		"store, no queue":   {recordFlags: recordFlags{queue: "sqlite:q.db?queue=orders", store: "sqlite:r.db"}},
		"quotes in its URL": {recordFlags: recordFlags{queue: "sqlite:it's.db?queue=orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			deadLetters := fillForPages(t, &o)
			o.operate = true
			get := pages(t, &o)
			var all []string
			for _, path := range []string{"/", "/dead-letters", "/workers", "/guarantee", "/audit-log", "/key?k=failed", "/key?k=unknown", "/key?k=it%27s+held", "/key?k=crashed"} {
				all = append(all, get(path, nil)...)
			}
			for _, id := range deadLetters {
				all = append(all, get("/dead-letter?id="+id, nil)...)
				all = append(all, get("/plan", url.Values{"id": {id}})...)
			}
			for _, want := range []string{
				"records resolve", "records release", "records ls --state UNCERTAIN", "queue stats", "workers", "dlq show", "dlq redrive", "dlq discard",
			} {
				if !slices.ContainsFunc(all, func(c string) bool { return strings.HasPrefix(c, "semel "+want) }) {
					t.Errorf("no page shows semel %s: %q", want, all)
				}
			}
			for _, line := range all {
				runAsPasted(t, line)
			}
		})
	}
}

// fillForPages makes a queue and records of which something is to be said on every page, and returns the IDs of the dead letters.
func fillForPages(t *testing.T, o *consoleOptions) (ids []string) {
	t.Helper()
	set := open.New(open.Options{})
	defer set.Close()
	store := o.store
	if store == "" {
		store = o.queue
	}
	q, s, err := set.Pair(t.Context(), o.queue, store)
	if err != nil {
		t.Fatal(err)
	}
	sender, _ := driver.As[driver.Sender](q)
	for _, id := range []string{"failed", "unknown"} {
		if err := sender.Send(t.Context(), semel.Message{ID: id, Body: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	handler := semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
		if a.Key.Raw == "failed" {
			return semel.Permanent(errors.New("no such order"))
		}
		return semel.Park(errors.New("timeout"))
	})
	c, err := semel.New(semel.Config{
		Queue: q, Store: s, Consumer: o.consumer, MaxAttempts: 1, Limit: 2, Handler: handler, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	consumer := o.consumer
	if consumer == "" {
		consumer = q.Features().Name
	}
	for raw, lease := range map[string]time.Duration{"it's held": time.Hour, "crashed": time.Millisecond} {
		k := driver.Key{Consumer: consumer, Raw: raw}
		if _, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: driver.Nonce{1}, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	log, _ := driver.As[driver.WorkerLog](s)
	if err := log.ReportWorker(t.Context(), driver.WorkerReport{
		ID: "1", Name: "host:1", Queue: q.Features().Name, Consumer: consumer, Seen: time.Now().Add(-time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	box, _ := driver.DeadLettersOf(q)
	all, err := box.DeadLetters(t.Context(), 0)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	return []string{all[0].ID, all[1].ID}
}

// pages returns a function that returns the commands on a page of the console. A page with a form is asked for by POST.
func pages(t *testing.T, o *consoleOptions) func(path string, form url.Values) []string {
	t.Helper()
	set := open.New(open.Options{MustExist: true})
	t.Cleanup(func() { _ = set.Close() })
	a := &app{p: &output.Printer{}, log: slog.New(slog.DiscardHandler)}
	c, err := a.openConsole(t.Context(), set, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h := signedIn(c, map[string]string{"token": operator}, web.NewHosts("127.0.0.1:0", ""))
	commands := regexp.MustCompile(`semel (records|dlq|workers|queue|doctor)\b[^<\n()]*`)
	return func(path string, form url.Values) []string {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
		if form != nil {
			r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Header.Set("Authorization", "Bearer token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		var all []string
		for _, c := range commands.FindAllString(w.Body.String(), -1) {
			all = append(all, html.UnescapeString(c))
		}
		return all
	}
}

// runAsPasted runs a command line as a shell reads it: without writing anything, if the command can.
func runAsPasted(t *testing.T, line string) {
	t.Helper()
	read, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `semel() { printf '%s\0' "$@"; }; `+line).Output()
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	args := strings.Split(strings.TrimSuffix(string(read), "\x00"), "\x00")
	if c, _, err := Command().Find(args); err != nil {
		t.Errorf("%s: %v", line, err)
	} else if c.Flags().Lookup("dry-run") != nil {
		args = slices.Insert(args, 2, "--dry-run")
	}
	var errs strings.Builder
	if status := Main(args, strings.NewReader(""), io.Discard, &errs); status != 0 {
		t.Errorf("%s: exit status %d: %s", line, status, &errs)
	}
}

package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/ops"
)

// TestViewer: a viewer sees no forms, and what it tried is in the audit log.
func TestViewer(t *testing.T) {
	f := start(t, nil)
	f.send("order-1")
	f.work(fails)
	for user, forms := range map[string]bool{"yui": true, "viewer": false} {
		_, page := f.do(http.MethodGet, "/dead-letters", nil, func(r *http.Request) { r.Header.Set("X-User", user) })
		if strings.Contains(page, `method="post"><`) || strings.Contains(page, "Discard") != forms || strings.Contains(page, "read only") == forms {
			t.Errorf("%s: %s", user, page)
		}
	}
	for range 3 {
		f.do(http.MethodPost, "/discard", url.Values{"kind": {"failed"}, "reason": {"because"}}, func(r *http.Request) { r.Header.Set("X-User", "viewer") })
	}
	f.c.Close()
	v := ask[auditView](f, http.MethodGet, "/audit-log", nil)
	if len(v.Items) != 1 || v.Items[0].By != "viewer" || v.Items[0].What != "refuse" || !strings.Contains(v.Items[0].Reason, "POST /discard") ||
		!strings.Contains(v.Items[0].Reason, "the last of 3 ") {
		t.Errorf("%+v", v.Items)
	}
}

// TestRefusalsAreBounded: however many requests are refused, for however many reasons, the store gets a few entries, and a write a
// minute.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		counted := &countedLog{Store: db.Store()}
		c, err := New(Config{
			Queue: db.Queue("orders"), Store: counted, Operator: func(*http.Request) bool { return true },
			By: func(r *http.Request) string { return r.Header.Get("X-User") }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const users, minutes = 100, 10
		for range minutes {
			for i := range users {
				r := httptest.NewRequest(http.MethodPost, "/key", nil)
				r.Header.Set("X-User", fmt.Sprint("eve-", i, strings.Repeat("!", 10_000)))
				c.Refuse(httptest.NewRecorder(), r, http.StatusForbidden, "not signed in")
			}
			time.Sleep(refusalEvery)
			synctest.Wait()
		}
		all, err := db.Store().Audit(t.Context(), driver.AuditFilter{})
		if err != nil || len(all) != refusalKinds+1 || counted.writes > (minutes+1)*(refusalKinds+1) {
			t.Errorf("%d entries, %d writes, %v", len(all), counted.writes, err)
		}
		n := 0
		for _, e := range all {
			var one int
			if len(e.By) > 100 {
				t.Errorf("a name of %d bytes", len(e.By))
			}
			if _, last, ok := strings.Cut(e.Reason, "the last of "); ok {
				if _, err := fmt.Sscan(last, &one); err != nil {
					t.Error(e.Reason, err)
				}
			}
			n += one
		}
		if n != users*minutes {
			t.Errorf("%d requests are counted", n)
		}
	})
}

// countedLog counts the writes of refused requests.
type countedLog struct {
	*memory.Store
	writes int
}

func (s *countedLog) LogRefusal(ctx context.Context, id string, e driver.AuditEntry) error {
	s.writes++
	return s.Store.LogRefusal(ctx, id, e)
}

// TestGuarantee: the page has the guarantee of each worker of the queue, and the checks of the caller; a short retention weakens it.
func TestGuarantee(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Checks = func(context.Context) ([]ops.Check, error) {
			return []ops.Check{{Check: "store", Level: ops.LevelOK, Detail: "fsync is on"}}, nil
		}
	})
	if v := ask[guaranteeView](f, http.MethodGet, "/guarantee", nil); v.Level != ops.LevelWarning || len(v.Guarantees) != 0 {
		t.Errorf("nobody works: %+v", v)
	}
	report := func(name, guarantee string, window time.Duration) {
		t.Helper()
		err := f.db.Store().ReportWorker(t.Context(), driver.WorkerReport{
			ID: name, Name: name, Queue: "orders", Consumer: "orders", Seen: time.Now(), Guarantee: guarantee, Window: window, Horizon: 24 * time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	report("a:1", "Exactly once.", 48*time.Hour)
	v := ask[guaranteeView](f, http.MethodGet, "/guarantee", nil)
	if v.Level != ops.LevelOK || len(v.Guarantees) != 1 || len(v.Checks) != 2 || v.Checks[0].Detail != "fsync is on" {
		t.Errorf("%+v", v)
	}
	for i, queue := range []string{"mails", "orders"} { // the store has the keys of both, the page is about one
		f.q = f.db.Queue(queue)
		f.send("order-1")
		f.work(func(*semel.Attempt) error { return semel.Park(errors.New("timeout")) })
		v = ask[guaranteeView](f, http.MethodGet, "/guarantee", nil)
		if last := v.Checks[len(v.Checks)-1]; len(v.Checks) != 2+i || i > 0 && !strings.Contains(last.Detail, "the outcome of 1 key is unknown") {
			t.Errorf("a key of %s is parked: %+v", queue, v)
		}
	}
	report("b:2", "At least once.", time.Hour)
	if v = ask[guaranteeView](f, http.MethodGet, "/guarantee", nil); v.Level != ops.LevelDanger || len(v.Guarantees) != 2 || !strings.Contains(v.Verdict, "would run again") {
		t.Errorf("%+v", v)
	}
	if _, page := f.do(http.MethodGet, "/guarantee", nil, nil); !strings.Contains(page, "At least once.") || !strings.Contains(page, `class="state bad"`) {
		t.Error(page)
	}
}

// TestJSONNames: the names of all fields are in lower case.
func TestJSONNames(t *testing.T) {
	f := start(t, nil)
	f.send("order-1", "order-2")
	f.work(func(a *semel.Attempt) error {
		if a.Key.Raw == "order-1" {
			return semel.Park(errors.New("timeout"))
		}
		return fails(a)
	})
	if err := f.db.Store().ReportWorker(t.Context(), driver.WorkerReport{
		Name: "a:1", Queue: "orders", Guarantee: "once", Window: time.Hour, Holds: []driver.WorkerHold{{Key: "k"}}, Settings: map[string]string{"key": "id"}, Seen: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	ls := ask[deadLettersView](f, http.MethodGet, "/dead-letters", nil)
	if len(ls.Items) != 2 || ls.Items[0].Raw == "" {
		t.Fatalf("%+v", ls)
	}
	for _, path := range []string{
		"/", "/dead-letters", "/dead-letter?id=" + ls.Items[0].ID, "/key?k=order-1", "/key?k=none", "/workers", "/guarantee", "/audit-log",
	} {
		_, body := f.do(http.MethodGet, path, nil, func(r *http.Request) { r.Header.Set("Accept", "application/json") })
		for _, name := range regexp.MustCompile(`"([^"]*)":`).FindAllStringSubmatch(body, -1) {
			if strings.ToLower(name[1]) != name[1] {
				t.Errorf("%s: %q in %s", path, name[1], body)
			}
		}
	}
}

package console

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

//go:embed assets/console.css
var styleSheet string

//go:embed assets/console.js
var script string

//go:embed templates
var files embed.FS

// tab is a page that the head of each page leads to.
type tab struct{ Page, Path, Title string }

var tabs = []tab{
	{"overview", "/", "Overview"}, {"deadletters", "/dead-letters", "Dead letters"}, {"workers", "/workers", "Workers"}, {"auditlog", "/audit-log", "Audit log"},
}

var titles = map[string]string{
	"overview": "Overview", "deadletters": "Dead letters", "deadletter": "Dead letter", "auditlog": "Audit log", "key": "Key", "workers": "Workers",
	"plan": "Redrive", "redrive": "Redrive", "discarded": "Discarded", "error": "Error",
}

// templates makes a template for each page of a console at a path, with the frame around it.
func templates(path string) map[string]*template.Template {
	base := template.Must(template.New("").Funcs(template.FuncMap{
		"ago": ago, "time": stamp, "text": func(s string) string { return words.Printable(s, 0) }, "short": func(s string) string { return words.Printable(s, 80) },
		"plural": func(n int, one string) string { return words.Count(n, one) }, "url": func(to string) string { return path + to },
		"holdURL": func(consumer string, h ops.WorkerHold) string {
			return path + keyURL(driver.Key{Consumer: consumer, Tenant: h.Tenant, Raw: h.Key})
		},
		"keyURL": func(k driver.Key) string { return path + keyURL(k) }, "groupURL": func(g groupView) string { return path + g.url() },
	}).ParseFS(files, "templates/frame.html"))
	all := map[string]*template.Template{}
	for name := range titles {
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return all
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// ago is how long ago a time was, or how far it is away.
func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := time.Since(t)
	unit := time.Second
	switch a := d.Abs(); {
	case a >= 48*time.Hour:
		unit = 24 * time.Hour
	case a >= time.Hour:
		unit = time.Hour
	case a >= time.Minute:
		unit = time.Minute
	}
	if d < 0 {
		return "in " + driver.DurationText((-d).Truncate(unit))
	}
	return driver.DurationText(d.Truncate(unit)) + " ago"
}

func keyURL(k driver.Key) string {
	q := url.Values{"k": {k.Raw}}
	if k.Consumer != "" {
		q.Set("consumer", k.Consumer)
	}
	if k.Tenant != "" {
		q.Set("tenant", k.Tenant)
	}
	return "/key?" + q.Encode()
}

// frame is what is around each page.
type frame struct {
	Title, Here, Queue string
	Operate            bool
	Tabs               []tab
	At                 time.Time
	Page               any
}

type errorView struct {
	Status int    `json:"-"`
	Name   string `json:"-"`
	Error  string `json:"error"`
}

func (c *Console) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	c.show(w, r, status, "error", errorView{status, http.StatusText(status), why})
}

// show writes a page, as JSON if the client wants that. It never writes half of one.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, v any) {
	var b bytes.Buffer
	kind := "text/html; charset=utf-8"
	var err error
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		kind = "application/json; charset=utf-8"
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err = e.Encode(v)
	} else {
		err = c.templates[name].ExecuteTemplate(&b, "frame", frame{
			Title: titles[name], Here: name, Queue: c.cfg.Queue.Features().Name, Operate: c.cfg.Operate, Tabs: tabs, At: time.Now().UTC(), Page: v,
		})
	}
	if err != nil {
		c.cfg.Log.ErrorContext(r.Context(), "console", "page", name, "error", err)
		http.Error(w, fmt.Sprintf("page %s could not be made: the log has the reason", name), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

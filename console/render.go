package console

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

//go:embed assets/console.css
var styleSheet string

//go:embed assets/console.js
var script string

type errorView struct {
	Status int    `json:"-"`
	Name   string `json:"-"`
	Error  string `json:"error"`
}

func (c *Console) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	c.show(w, r, status, "error", errorView{status, http.StatusText(status), why})
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
		body = []byte(c.frame(name, v))
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

package watch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

var both = []plan.Guard{plan.GuardOff, plan.GuardOn}

func scenario() plan.Scenario {
	return plan.Scenario{
		Name: "crash", Title: "Workers <b>die</b>", Load: plan.Load{Orders: 3, Currency: "JPY"}, Workers: plan.Workers{Count: 2},
		Designs: map[plan.Guard]plan.Design{plan.GuardOff: plan.Plain, plan.GuardOn: plan.Semel},
	}
}

func listen(t *testing.T) *Server {
	t.Helper()
	v, err := Listen("", scenario(), both)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close(Last{Problem: "the test has ended"}) })
	return v
}

// do sends a request; change is what is unusual about it.
func do(t *testing.T, method, url, body string, change func(*http.Request)) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestListensOnTheLoopbackInterfaceAlone: an address elsewhere is refused before anything listens.
func TestListensOnTheLoopbackInterfaceAlone(t *testing.T) {
	for addr, want := range map[string]string{
		"": "127.0.0.1:0", ":8080": "127.0.0.1:8080", "localhost:1": "127.0.0.1:1", "127.0.0.9:2": "127.0.0.9:2", "[::1]:3": "[::1]:3",
	} {
		if got, err := loopback(addr); got != want || err != nil {
			t.Errorf("%q: %q, %v", addr, got, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:80", "[::]:80", "192.168.1.1:80", "example.org:80", "8080", "127.0.0.1"} {
		if _, err := Listen(addr, scenario(), both); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestLetsOnlyThoseInWhoKnowTheToken and come under its own name; nothing is said to pages of other origins.
func TestLetsOnlyThoseInWhoKnowTheToken(t *testing.T) {
	v := listen(t)
	root := strings.TrimSuffix(v.URL(), v.token+"/")
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	_, port, _ := strings.Cut(v.listener.Addr().String(), ":")
	for _, c := range []struct {
		url    string
		change func(*http.Request)
		want   int
	}{
		{v.URL(), nil, 200},
		{v.URL(), host("localhost:" + port), 200},
		{v.URL() + "watch.js", nil, 200},
		{v.URL(), host("evil.example:" + port), 421},
		{v.URL(), host("127.0.0.1"), 200},
		{root, nil, 404},
		{root + strings.Repeat("0", 32) + "/", nil, 404},
		{root + v.token, nil, 404},
		{root + "watch.js", nil, 404},
		{v.URL() + "faults", nil, 405},
		{v.URL() + "other", nil, 404},
	} {
		res := do(t, http.MethodGet, c.url, "", c.change)
		if res.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.url, res.Status, c.want)
		}
		if h := res.Header; h.Get("Access-Control-Allow-Origin") != "" || h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", c.url, h)
		}
	}
	if len(v.token) != 32 || v.token == listen(t).token {
		t.Error("the token can be guessed")
	}
}

// TestFaultsReachBothSides: a valid fault reaches both runs, an invalid one reaches none.
func TestFaultsReachBothSides(t *testing.T) {
	v := listen(t)
	off, on := v.Side(plan.GuardOff, t.TempDir()), v.Side(plan.GuardOn, t.TempDir())
	post := func(body string, change func(*http.Request)) int {
		return do(t, http.MethodPost, v.URL()+"faults", body, change).StatusCode
	}
	for body, want := range map[string]crew.Fault{
		`{"do":"kill","worker":2}`:                 {Do: plan.Kill, Worker: 2},
		`{"do":"freeze","worker":1,"for_ms":3000}`: {Do: plan.Freeze, Worker: 1, For: 3 * time.Second},
		`{"do":"drop-ack"}`:                        {Do: crew.DropAck},
		`{"do":"outage","for_ms":60000}`:           {Do: plan.Outage, For: time.Minute},
		`{"do":"fail-heartbeats","for_ms":1}`:      {Do: crew.FailHeartbeats, For: time.Millisecond},
		`{"do":"duplicate"}`:                       {Do: crew.Duplicate},
	} {
		if got := post(body, nil); got != http.StatusNoContent {
			t.Errorf("%s: %d", body, got)
			continue
		}
		if a, b := <-off.Faults, <-on.Faults; a != want || b != want {
			t.Errorf("%s: %+v and %+v, want %+v", body, a, b, want)
		}
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, c := range []struct {
		body   string
		change func(*http.Request)
		want   int
	}{
		{`{"do":"kill"}`, header("Content-Type", "text/plain"), 415},
		{`{"do":"kill"}`, header("Origin", "http://evil.example"), 403},
		{`{"do":"kill"}`, header("Origin", "null"), 403},
		{`{"do":"explode"}`, nil, 400},
		{`{"do":"kill","worker":3}`, nil, 400},
		{`{"do":"freeze","worker":1}`, nil, 400},
		{`{"do":"outage","for_ms":60001}`, nil, 400},
		{`{"do":"kill","more":1}`, nil, 400},
		{`{"do":"` + strings.Repeat("x", 2000) + `"}`, nil, 400},
	} {
		if got := post(c.body, c.change); got != c.want {
			t.Errorf("%.40s: %d, want %d", c.body, got, c.want)
		}
	}
	if len(off.Faults)+len(on.Faults) > 0 {
		t.Error("what was refused was done")
	}
	for range maxFaults {
		post(`{"do":"duplicate"}`, header("Origin", strings.TrimSuffix(v.URL(), "/"+v.token+"/")))
	}
	if len(off.Faults) != maxFaults {
		t.Errorf("%d faults of the own page arrived", len(off.Faults))
	}
	if got := post(`{"do":"duplicate"}`, nil); got != 400 || len(off.Faults) != maxFaults {
		t.Errorf("too many at once: %d", got)
	}
	if post(`{"do":"finish"}`, nil); !closed(off.Finish) || !closed(on.Finish) {
		t.Error("finish does not finish")
	}
	v.Finish() // again
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// next reads the next message of a stream that is accepted.
func next(t *testing.T, in *bufio.Scanner, accept func(batch) bool) batch {
	t.Helper()
	for in.Scan() {
		line, isData := strings.CutPrefix(in.Text(), "data: ")
		if !isData {
			continue
		}
		var b batch
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			t.Fatal(err)
		}
		if accept(b) {
			return b
		}
	}
	t.Fatal("the stream ended")
	return batch{}
}

// TestS1_36_PagesGetWhatHappens: what processes write, what the ledger holds, what a page that comes later missed, and the end.
func TestS1_36_PagesGetWhatHappens(t *testing.T) {
	v := listen(t)
	dir := t.TempDir()
	off := v.Side(plan.GuardOff, dir)
	at := time.Now().UnixMicro()
	entries := fmt.Sprintf(`{"at":%d,"kind":"spawn","worker":1,"life":1,"pid":7}
{"at":%d,"kind":"received","worker":1,"life":1,"key":"a","message":"m-1","visible_ms":1000}
{"at":%d,"kind":"decided","worker":1,"life":1,"key":"a","message":"m-1","decision":"replayed"}
{"at":%d,"kind":"depth"}
{"at":%d,"kind":"undone","worker":1,"life":1,"key":"a","message":"m-1","error":"the service is down"}
{"at":%d,"kind":"sett`, at, at, at, at, at, at)
	file := filepath.Join(dir, "events-1-1.jsonl")
	if err := os.WriteFile(file, []byte(entries), 0o600); err != nil {
		t.Fatal(err)
	}
	off.Look(crew.Status{
		Sent:    []plan.Send{{Key: "a"}, {Key: "b"}},
		Effects: []place.Effect{{Key: "a", Amount: 100, At: time.Now()}, {Key: "a", Amount: 100, At: time.Now(), Worker: 1}},
	})
	has := func(kind string) func(batch) bool {
		return func(b batch) bool {
			for _, e := range b.Events {
				if e.Kind == kind {
					return true
				}
			}
			return false
		}
	}
	stream := func() *bufio.Scanner {
		in := bufio.NewScanner(do(t, http.MethodGet, v.URL()+"events", "", nil).Body)
		in.Buffer(nil, 1<<20)
		return in
	}
	first := stream()
	b := next(t, first, has("doubled"))
	if !has("spawn")(b) || !has("received")(b) || has("depth")(b) {
		t.Errorf("%+v", b.Events)
	}
	for _, e := range b.Events {
		if e.Kind == "undone" && e.What != "the service is down" { // S1-36
			t.Errorf("a compensation that failed is %+v", e)
		}
	}
	if !has("undone")(b) {
		t.Error("the page does not get the compensation that failed")
	}
	f := next(t, first, func(b batch) bool { return b.Figures["off"].Delivered == 1 }).Figures["off"]
	if f.Sent != 2 || f.Effects != 2 || f.Duplicated != 1 || f.Lost != 1 || f.Skipped != 1 || f.Money != "¥100" {
		t.Errorf("figures %+v", f)
	}
	// the end of the line that was cut
	w, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(w, "led\",\"worker\":1,\"life\":1,\"key\":\"a\",\"message\":\"m-1\",\"action\":\"ack\",\"reason\":\"gone\"}\n")
	_ = w.Close()
	if b := next(t, first, has("settled")); b.Events[0].What != "dropped" {
		t.Errorf("%+v", b.Events)
	}
	second := stream()
	if b := next(t, second, func(batch) bool { return true }); !has("spawn")(b) || !has("doubled")(b) || !has("settled")(b) {
		t.Errorf("a page that joins later gets %+v", b.Events)
	}
	v.Close(Last{Runs: []verdict.Run{{Guard: plan.GuardOn, Verdict: plan.Held}}})
	for _, s := range []*bufio.Scanner{first, second} {
		if b := next(t, s, func(b batch) bool { return b.Last != nil }); len(b.Last.Runs) != 1 {
			t.Errorf("the last words: %+v", b.Last)
		}
		for s.Scan() {
			if s.Text() != "" {
				t.Errorf("more after the last words: %s", s.Text())
			}
		}
	}
	if _, err := http.Get(v.URL()); err == nil { //nolint:noctx // there is no response
		t.Error("it still serves")
	}
}

// TestPageEscapes: titles are text.
func TestPageEscapes(t *testing.T) {
	v := listen(t)
	var b strings.Builder
	res := do(t, http.MethodGet, v.URL(), "", nil)
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if html := b.String(); strings.Contains(html, "<b>die") || !strings.Contains(html, "die") || strings.Count(html, "data-do=\"kill\"") != 2 {
		t.Error(html)
	}
}

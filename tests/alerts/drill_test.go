package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// provider charges cards, and charges twice when it is asked twice. While it is down it refuses all charges but those of three
// keys, whose connections break: it has charged two of them.
type provider struct {
	mu      sync.Mutex
	down    bool
	charges map[string]int    // by effect key
	keys    map[string]string // of effect keys
}

var broken = map[string]bool{"order-100": true, "order-200": true, "order-300": false} // charged or not

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		switch n := p.charges[strings.TrimPrefix(r.URL.Path, "/charges/")]; {
		case p.down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n == 0:
			w.WriteHeader(http.StatusNotFound)
		}
		return
	}
	key, effect := r.Header.Get("Semel-Key"), r.Header.Get("Idempotency-Key")
	charged, breaks := broken[key]
	if !p.down || charged {
		p.charges[effect]++
		p.keys[effect] = key
	}
	switch {
	case p.down && breaks:
		panic(http.ErrAbortHandler)
	case p.down:
		w.Header().Set("Semel-Reason", "the acquirer of the provider does not respond")
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
}

func (p *provider) set(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// export writes the charges as an audit reads them.
func (p *provider) export(t *testing.T, path string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var b bytes.Buffer
	for effect, n := range p.charges {
		for range n {
			fmt.Fprintf(&b, "{\"key\":%q,\"effect_key\":%q}\n", p.keys[effect], effect)
		}
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// drill runs the blocks of the page's drill.
type drill struct {
	*place
	env    []string
	blocks []string
}

// step runs a block, which must exit with a status, and returns what it printed.
func (d *drill) step(block, status int) string {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), timeout)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-ec", d.blocks[block])
	c.Dir, c.Env = d.dir, d.env
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		d.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		d.Fatalf("exit status %d, want %d:\n%s\n%s%s", got, status, d.blocks[block], out, &errs)
	}
	return string(out)
}

// orders makes a file of orders from a number up to another.
func (p *place) orders(from, to int) string {
	p.Helper()
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"id\":\"order-%d\"}\n", i)
	}
	if err := os.WriteFile(p.file("orders.jsonl"), b.Bytes(), 0o600); err != nil {
		p.Fatal(err)
	}
	return "orders.jsonl"
}

// outage is a place whose provider was down: 500 dead letters and three keys whose outcome is unknown.
func outage(t *testing.T, orders int) (*drill, *provider) {
	t.Helper()
	p := newPlace(t)
	psp := &provider{charges: map[string]int{}, keys: map[string]string{}}
	srv := httptest.NewServer(psp)
	t.Cleanup(srv.Close)
	worker := p.work("--key", "json:/id", "--takeover", "once", "--http", srv.URL+"/charge")
	p.run("send", "--queue", queue, p.orders(0, 1))
	worker.says(`"msg":"executed"`) // if no run had succeeded since its start, the worker would pause instead
	psp.set(true)
	p.run("send", "--queue", queue, p.orders(1, orders))
	p.drained()
	console := p.start("console", "--queue", queue, "--listen", "127.0.0.1:0", "-o", "json")
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(console.out.String())[1]

	page, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## Drill\n")
	if !found {
		t.Fatal("docs/runbooks.md has no drill")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	d := &drill{place: p, env: append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"),
		"QUEUE="+queue, "STORE="+queue, "PROVIDER="+srv.URL, "CONSOLE="+console.url, "TOKEN="+token)}
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1)[1:] { // the first sets the variables
		d.blocks = append(d.blocks, m[1])
	}
	if len(d.blocks) != 4 {
		t.Fatalf("the drill has %d blocks, want 4", len(d.blocks))
	}
	return d, psp
}

// TestS1_19Drill: after an outage of a provider, the commands of the drill alone find the cause, decide the unknown outcomes and
// redrive the dead letters. The provider's ledger has one charge of each key, although it does not deduplicate.
func TestS1_19Drill(t *testing.T) {
	const orders = 504 // one before the outage, three whose outcome is unknown
	d, psp := outage(t, orders)

	look := d.step(0, 0)
	first, _, _ := strings.Cut(look, "\n{")
	var overview struct {
		Level, Headline string
		Uncertain       []struct{ Key string }
		DeadLetters     struct {
			Groups []struct {
				Kind, Reason string
				Count        int
			}
		} `json:"dead_letters"`
	}
	if err := json.NewDecoder(strings.NewReader(first)).Decode(&overview); err != nil {
		t.Fatalf("%v:\n%s", err, look)
	}
	if overview.Level != "warn" || overview.Headline != "The outcome of 3 keys is unknown" || len(overview.Uncertain) != 3 {
		t.Errorf("the console's first page is %+v", overview)
	}
	groups := map[string]int{}
	for _, g := range overview.DeadLetters.Groups {
		groups[g.Kind+": "+g.Reason] = g.Count
	}
	if groups["failed: handler responded # Unprocessable Entity: the acquirer of the provider does not respond"] != orders-4 || len(groups) != 2 {
		t.Errorf("groups of dead letters: %v", groups)
	}
	for _, want := range []string{"the acquirer of the provider does not respond", "It is unknown whether its effect happened"} {
		if !strings.Contains(look, want) {
			t.Errorf("the first look does not show %q:\n%s", want, look)
		}
	}

	// Too early: nothing changes.
	if out := d.step(1, 3); strings.Count(out, `"outcome":"unknown"`) != 3 {
		t.Errorf("the probe of a provider that is down decided:\n%s", out)
	}
	d.step(2, 1)
	d.drained() // the first failure ends the command
	if n := strings.Count(d.run("dlq", "ls", "--queue", queue, "--kind", "failed", "-o", "jsonl"), "\n"); n != orders-4 {
		t.Errorf("%d dead letters after a canary that failed, want %d", n, orders-4)
	}

	psp.set(false)
	out := d.step(1, 0)
	if strings.Count(out, `"as":"completed"`) != 2 || strings.Count(out, `"key":"order-300","outcome":"not-applied","as":"retry"`) != 1 {
		t.Errorf("the probe decided otherwise:\n%s", out)
	}
	d.step(2, 0)
	for end := time.Now().Add(timeout); psp.charged() < orders; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d keys are charged", psp.charged(), orders)
		}
	}
	d.drained()
	psp.export(t, d.file("charges.jsonl"))
	if out := d.step(3, 0); strings.Contains(out, `"kind"`) || strings.Contains(out, "UNCERTAIN") {
		t.Errorf("something needs a person:\n%s", out)
	}
	for effect, n := range psp.charges {
		if n != 1 {
			t.Errorf("%s was charged %d times", psp.keys[effect], n)
		}
	}
}

func (p *provider) charged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges)
}

// drained waits until every key is recorded: the provider knows a charge before its record does.
func (p *place) drained() {
	p.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		stats := p.run("queue", "stats", "--queue", queue, "-o", "json")
		if strings.Contains(stats, `"visible":0,"in_flight":0`) {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("the queue is not empty: %s", stats)
		}
	}
}

package alerts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ps "github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/tests/internal/binary"
)

// timeout bounds every wait. A test normally waits for a moment; only a busy machine takes longer.
const timeout = 10 * time.Minute

// program is semel, built once.
var program = sync.OnceValues(binary.Build)

// place is a folder with a queue, and the processes that work on it.
type place struct {
	*testing.T
	dir string
}

// queue is the URL of the place's queue.
const queue = "sqlite:q.db?queue=orders"

func newPlace(t *testing.T) *place {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	p := &place{t, t.TempDir()}
	p.run("queue", "create", "--queue", queue)
	return p
}

func (p *place) command(ctx context.Context, args ...string) *exec.Cmd {
	path, err := program()
	if err != nil {
		p.Fatal(err)
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Dir = p.dir
	return c
}

// run runs a command to its end, and returns what it printed.
func (p *place) run(args ...string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), timeout)
	defer cancel()
	c := p.command(ctx, args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		p.Fatalf("semel %s: %v\n%s%s", strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}

// file is the path of a file that handlers of the place see under its name.
func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

// waitFor waits for a file that a handler makes.
func (p *place) waitFor(name string) {
	p.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(p.file(name)); err == nil {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("no handler made %s", name)
		}
	}
}

// process is a semel that runs.
type process struct {
	*testing.T
	*ps.Process
	url string
	out ps.Output
}

// work starts a worker that consumes the place's queue and shows its figures.
func (p *place) work(args ...string) *process {
	p.Helper()
	return p.start(append([]string{"work", "--queue", queue, "--listen", "127.0.0.1:0", "--log-format", "json", "-v"}, args...)...)
}

// serve starts a server of the place's queue, which shows figures of queue and store.
func (p *place) serve() *process {
	p.Helper()
	return p.start("serve", "--queue", queue, "--listen", "127.0.0.1:0", "-o", "json")
}

var address = regexp.MustCompile(`"listen(?:ing)?":"(http://[^"]+)"`)

func (p *place) start(args ...string) *process {
	p.Helper()
	r := &process{T: p.T}
	cmd := p.command(context.Background(), args...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	r.Process = ps.StartTest(p.T, cmd)
	r.url = address.FindStringSubmatch(r.says(`"listen`))[1]
	return r
}

// says waits for a line of the process's output that has a text in it.
func (r *process) says(text string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	line, err := r.Await(ctx, &r.out, ps.Contains(text))
	if err != nil {
		r.Fatalf("it never said %q: %v", text, err)
	}
	return line
}

// metrics is what Prometheus scrapes. Figures of queue and store are asked for at the first scrape, and shown for ten seconds:
// make what is to be seen first.
func (r *process) metrics() string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/metrics", nil)
	if err != nil {
		r.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		r.Fatalf("%s %v: %s", res.Status, err, b)
	}
	return string(b)
}

// shows waits until the metrics have a line, and returns them. The line must be of what is not cached.
func (r *process) shows(line string) string {
	r.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		if text := r.metrics(); strings.Contains(text, line+"\n") {
			return text
		} else if time.Now().After(end) {
			r.Fatalf("it never showed %s, but:\n%s", line, strings.Join(sampled.FindAllString(text, -1), "\n"))
		}
	}
}

// history is what Prometheus scraped, minute by minute: a few scrapes of real processes make hours of it.
type history struct {
	began   time.Time // times in the metrics are counted from here
	minutes int
	series  map[string][]string
}

func newHistory() *history { return &history{began: time.Now(), series: map[string][]string{}} }

var sampled = regexp.MustCompile(`(?m)^(semel_[a-z_]+)\{(.*)\} (\S+)$`)

// scrapes adds some minutes in which each instance shows its scraped metrics.
func (h *history) scrapes(minutes int, instances map[string]string) {
	now := map[string]string{}
	for name, text := range instances {
		for _, m := range sampled.FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(m[1], "_bucket") {
				continue
			}
			v, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				panic(err)
			}
			if strings.HasSuffix(m[1], "_timestamp_seconds") {
				v -= float64(h.began.Unix())
			}
			now[fmt.Sprintf(`%s{%s,instance=%q}`, m[1], m[2], name)] = strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	for name, values := range h.series {
		if _, there := now[name]; !there && values[len(values)-1] != "stale" && values[len(values)-1] != "_" {
			h.series[name] = append(values, "stale") // as Prometheus marks a series whose target is gone
		}
	}
	for range minutes {
		h.minutes++
		for name, v := range now {
			if len(h.series[name]) == 0 && h.minutes > 1 {
				h.series[name] = []string{"stale"} // the storage wants every series to begin with the others
			}
			for len(h.series[name]) < h.minutes-1 {
				h.series[name] = append(h.series[name], "_")
			}
			h.series[name] = append(h.series[name], v)
		}
	}
}

// rings lists the alerts that fire at the end of the history.
func (h *history) rings(t *testing.T) []string {
	t.Helper()
	var text []string
	for name, values := range h.series {
		text = append(text, name+" "+strings.Join(values[:min(len(values), h.minutes)], " "))
	}
	rec := recorded(t, strings.Join(text, "\n"))
	var all []string
	for name, r := range load(t) {
		if rec.fires(r, h.minutes-1) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// expect fails unless these alerts fire at the end of the history, and no others.
func (h *history) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := h.rings(t); !slices.Equal(got, want) {
		t.Errorf("%s: %q ring, want %q", when, got, want)
	}
}

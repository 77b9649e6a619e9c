// Package realinput runs the binary on real webhook payloads: some 330 GitHub webhooks of the npm package
// @octokit/webhooks-examples, each sent three times in shuffled order, consumed by three worker processes, one of them
// killed with SIGKILL while it works: on one SQLite file, and from every queue onto every store (TestPairs). The verdict comes from what the handlers left behind.
package realinput

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/tests/internal/binary"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

// program is semel, built once.
var program = sync.OnceValues(binary.Build)

func TestMain(m *testing.M) {
	kfake.MainIfBroker()
	os.Exit(m.Run())
}

// event is a line of an events file.
type event struct {
	Event, Kind string
	Key         string `json:"key"`
	Decision    string `json:"decision"`
}

// fixture is one run: queue and records, three workers, one kill.
type fixture struct {
	t        *testing.T
	dir, db  string
	semel    string
	distinct int
	// queue and store are where the workers' messages and records are.
	queue, store string
	workers      int // that were started
	// strike is done when a worker has been killed; nil = nothing more.
	strike func()
}

// newFixture has queue and records in one SQLite file.
func newFixture(t *testing.T, lines []string) *fixture {
	t.Helper()
	return newFixtureOn(t, lines, func(dir string) string { return "sqlite://" + filepath.Join(dir, "hooks.db") + "?queue=hooks" }, "")
}

// newFixtureOn has its queue where queue says, and its records in store, or with the queue when that is "".
func newFixtureOn(t *testing.T, lines []string, queue func(dir string) string, store string) *fixture {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s := &fixture{t: t, dir: t.TempDir(), semel: path, distinct: len(lines)}
	s.db = filepath.Join(s.dir, "hooks.db")
	s.queue = queue(s.dir)
	if s.store = store; store == "" {
		s.store = s.queue
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("shuffle seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	all := append(append(append([]string(nil), lines...), lines...), lines...)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	file := filepath.Join(s.dir, "hooks.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("send", "--queue", s.queue, file)
	return s
}

func (s *fixture) run(args ...string) []byte {
	s.t.Helper()
	cmd := exec.Command(s.semel, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("semel %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// work lets three workers empty the queue; the first is killed when a fifth of the effects are there.
func (s *fixture) work(handler string, effects func() int, extra ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	var workers []*worker
	for range 3 {
		workers = append(workers, s.start(ctx, handler, extra...))
	}
	s.await(ctx, effects, s.distinct/5)
	s.kill(workers[0])
	if s.strike != nil {
		s.started(ctx, workers[1:]...)
		s.strike()
	}
	s.ended(workers[1:]...)
}

type worker struct {
	*process.Process
	log process.Output
}

// start starts a worker.
func (s *fixture) start(ctx context.Context, handler string, extra ...string) *worker {
	s.t.Helper()
	name := filepath.Join(s.dir, fmt.Sprintf("%d", s.workers))
	s.workers++
	args := append([]string{"work", "--queue", s.queue, "--store", s.store, "--key", "body", "--exec", handler, "--until-empty",
		"--visibility", "4s", "--max-attempts", "1000", "--backoff", "100ms..1s", "--concurrency", "4", "-o", "json", "--events", name + ".events"}, extra...)
	w := &worker{log: process.Output{Keep: 4000}}
	cmd := exec.CommandContext(ctx, s.semel, args...)
	cmd.Stderr = &w.log
	w.Process = process.StartTest(s.t, cmd)
	return w
}

// started waits until workers have opened queue and store: a worker that finds no server at its start ends.
func (s *fixture) started(ctx context.Context, workers ...*worker) {
	s.t.Helper()
	for _, w := range workers {
		if _, err := w.Await(ctx, &w.log, process.Contains("consumer started")); err != nil {
			s.t.Fatal(err)
		}
	}
}

// await waits for n effects.
func (s *fixture) await(ctx context.Context, effects func() int, n int) {
	s.t.Helper()
	for effects() < n && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
	}
}

// kill kills a worker, which has to be at work.
func (s *fixture) kill(w *worker) {
	s.t.Helper()
	if w.Kill(); !w.Killed() {
		s.t.Fatalf("the killed worker had ended by itself (%v): the run shows nothing", w.State())
	}
}

// ended waits until workers have emptied the queue.
func (s *fixture) ended(workers ...*worker) {
	s.t.Helper()
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			s.t.Fatalf("a worker ended with %v\n%s", err, &w.log)
		}
	}
}

// decisions counts the ends of deliveries over all workers, the killed one included.
func (s *fixture) decisions() map[string]int {
	s.t.Helper()
	n := map[string]int{}
	for i := range s.workers {
		f, err := os.Open(filepath.Join(s.dir, fmt.Sprintf("%d.events", i)))
		if err != nil {
			s.t.Fatal(err)
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			var e event
			if json.Unmarshal(sc.Bytes(), &e) == nil && e.Decision != "" {
				n[e.Decision]++
			}
		}
		f.Close()
	}
	return n
}

func (s *fixture) records() []map[string]any {
	s.t.Helper()
	var out []map[string]any
	for _, line := range bytes.Split(bytes.TrimSpace(s.run("records", "ls", "--limit", "0", "--store", s.store, "-o", "jsonl")), []byte("\n")) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// settled checks what every run must show: a completed record per payload, nothing left to deliver, no dead letter.
func (s *fixture) settled() {
	s.t.Helper()
	rs := s.records()
	if len(rs) != s.distinct {
		s.t.Errorf("%d records of %d payloads", len(rs), s.distinct)
	}
	for _, r := range rs {
		if r["state"] != "COMPLETED" {
			s.t.Errorf("record %v is %v", r["key"], r["state"])
		}
	}
	if out := bytes.TrimSpace(s.run("dlq", "ls", "--queue", s.queue, "--store", s.store, "-o", "jsonl")); len(out) > 0 {
		s.t.Errorf("dead letters: %s", out)
	}
	d := s.decisions()
	s.t.Logf("decisions of %d deliveries sent: %v", 3*s.distinct, d)
	if d["replayed"] < s.distinct {
		s.t.Errorf("only %d of about %d duplicates were replayed", d["replayed"], 2*s.distinct)
	}
}

func (s *fixture) script(body string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, "handler.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nset -e\n"+body), 0o700); err != nil { //nolint:gosec // it is to be run
		s.t.Fatal(err)
	}
	return path
}

// TestKeyedEffect: the handler's effect is a file named by SEMEL_EFFECT_KEY, as a downstream that deduplicates would.
func TestKeyedEffect(t *testing.T) {
	s := newFixture(t, payloads(t))
	h := s.keyed()
	s.work(h, s.files)
	s.settled()
	s.once()
}

// keyed makes the handler of keyed effects.
func (s *fixture) keyed() string {
	s.t.Helper()
	out := filepath.Join(s.dir, "effects")
	if err := os.Mkdir(out, 0o700); err != nil {
		s.t.Fatal(err)
	}
	return s.script(fmt.Sprintf("cat > %s/$SEMEL_EFFECT_KEY.$$\nmv %[1]s/$SEMEL_EFFECT_KEY.$$ %[1]s/$SEMEL_EFFECT_KEY.done\necho ok\n", out))
}

// files counts the keyed effects.
func (s *fixture) files() int {
	f, _ := filepath.Glob(filepath.Join(s.dir, "effects", "*.done"))
	return len(f)
}

// once wants one keyed effect of each payload.
func (s *fixture) once() {
	s.t.Helper()
	if n := s.files(); n != s.distinct {
		s.t.Errorf("%d effects of %d payloads", n, s.distinct)
	}
	seen := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(s.dir, "effects", "*.done"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			s.t.Fatal(err)
		}
		if c := compact(s.t, b); seen[c] {
			s.t.Errorf("one payload has two effects: %s", f)
		} else {
			seen[c] = true
		}
	}
}

// TestNakedEffect: the handler appends to a file and nothing deduplicates that. Every extra effect has to be explained
// by the record: effects ≤ 1 + uncertainty events + failed runs.
func TestNakedEffect(t *testing.T) {
	s := newFixture(t, payloads(t))
	out := filepath.Join(s.dir, "effects.log")
	read := func() map[string]int {
		b, err := os.ReadFile(out)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, k := range strings.Fields(string(b)) {
			n[k]++
		}
		return n
	}
	h := s.script(fmt.Sprintf("cat > /dev/null\necho \"$SEMEL_KEY\" >> %s\nsleep 0.02\n", out))
	s.work(h, func() int { return len(read()) })
	s.settled()
	effects := read()
	if len(effects) != s.distinct {
		t.Errorf("effects of %d keys, of %d payloads", len(effects), s.distinct)
	}
	extra := 0
	for _, r := range s.records() {
		key := r["key"].(string)
		doubts, _ := r["uncertainty_events"].(float64)
		failures, _ := r["failures"].(float64)
		n := effects[key]
		if n > 1+int(doubts)+int(failures) {
			t.Errorf("key %s: %d effects, %v uncertainty events, %v failed runs", key, n, doubts, failures)
		}
		if n > 1 {
			extra++
			timeline := s.run("records", "explain", key, "--store", s.store, "--events", filepath.Join(s.dir, "0.events"),
				"--events", filepath.Join(s.dir, "1.events"), "--events", filepath.Join(s.dir, "2.events"))
			t.Logf("%s", timeline)
			if !bytes.Contains(timeline, []byte("taken over")) && !bytes.Contains(timeline, []byte("doubt")) {
				t.Errorf("the timeline of %s does not explain its %d effects", key, n)
			}
		}
	}
	t.Logf("%d keys with an extra effect", extra)
}

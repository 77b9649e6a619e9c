package load

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/ops"
)

func good() Options {
	return Options{N: 4, Workers: 2, Concurrency: 2, Visibility: time.Second, Timeout: time.Second, Command: []string{"false"}}
}

func TestS4_09_OptionsNameTheFlag(t *testing.T) {
	for flag, spoil := range map[string]func(*Options){
		"n": func(o *Options) { o.N = 0 }, "workers": func(o *Options) { o.Workers = maxWorkers + 1 },
		"concurrency": func(o *Options) { o.Concurrency = 0 }, "same-key": func(o *Options) { o.SameKey, o.N = true, 1 },
		"handler-time": func(o *Options) { o.HandlerTime = -1 }, "rate": func(o *Options) { o.Rate = -1 },
		"visibility": func(o *Options) { o.Visibility = 1500 * time.Millisecond }, "timeout": func(o *Options) { o.Timeout = 0 },
	} {
		o := good()
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(&o)
		bad := (*UsageError)(nil)
		if err := o.Check(); !errors.As(err, &bad) || bad.Flag != flag {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}

// TestS4_26_ChecksSayNo: each count that does not come out is one ✗, and the only one.
func TestS4_26_ChecksSayNo(t *testing.T) {
	for _, c := range []struct {
		name        string
		sameKey     bool
		made        map[string]int
		ends        []semel.Decision
		left        int64
		deadLetters int
		log         int
		want        []string
	}{
		{name: "all well", made: map[string]int{"a": 1, "b": 1}, ends: []semel.Decision{semel.Executed, semel.Executed}},
		{name: "one missing", made: map[string]int{"a": 1, "b": 1}, ends: []semel.Decision{semel.Executed}, want: []string{"sent = done"}},
		{
			name: "one twice", made: map[string]int{"a": 2, "b": 1}, ends: []semel.Decision{semel.Executed, semel.Executed},
			want: []string{"executed once each", "effects = keys"},
		},
		{
			name: "one twice, another not", made: map[string]int{"a": 2}, ends: []semel.Decision{semel.Executed, semel.Executed},
			want: []string{"executed once each", "effects = keys"},
		},
		{
			name: "left over", made: map[string]int{"a": 1, "b": 1}, ends: []semel.Decision{semel.Executed, semel.Executed}, left: 1,
			want: []string{"queue empty"},
		},
		{
			name: "a dead letter", made: map[string]int{"a": 1, "b": 1}, ends: []semel.Decision{semel.Executed, semel.Executed}, deadLetters: 1,
			want: []string{"queue empty"},
		},
		{
			name: "errors in the log", made: map[string]int{"a": 1, "b": 1}, ends: []semel.Decision{semel.Executed, semel.Executed}, log: 1,
			want: []string{"no ERROR in the logs"},
		},
		{name: "one key", sameKey: true, made: map[string]int{theKey: 1}, ends: []semel.Decision{semel.Executed, semel.Replayed}},
		{
			name: "one key, two runs", sameKey: true, made: map[string]int{theKey: 2}, ends: []semel.Decision{semel.Executed, semel.Executed},
			want: []string{"executed 1", "suppressed 1", "effects = keys"},
		},
	} {
		b := &bench{Options: Options{N: 2, SameKey: c.sameKey}, ids: []string{"m1", "m2"}, began: time.Now(), sent: map[string]time.Time{}}
		tl := &tally{ends: map[string]semel.Decision{}, done: map[string]time.Time{}}
		for i, d := range c.ends {
			b.sent[b.ids[i]], tl.ends[b.ids[i]], tl.done[b.ids[i]] = b.began, d, b.began.Add(time.Second)
		}
		tl.last = b.began.Add(time.Second)
		res := Result{Errors: Errors{LogLines: c.log}}
		res.fill(b, tl)
		res.check(b, tl, c.made, c.left, c.deadLetters)
		var no []string
		for _, one := range res.Checks {
			if !one.OK {
				no = append(no, one.Name)
			}
		}
		if !slices.Equal(no, c.want) || res.OK() != (len(c.want) == 0) || res.Verdict == "ok" != res.OK() {
			t.Errorf("%s: said no to %q, want %q; verdict %s", c.name, no, c.want, res.Verdict)
		}
		var text strings.Builder
		if err := res.WriteText(&text); err != nil || strings.Count(text.String(), "✗") != len(c.want) {
			t.Errorf("%s: %v\n%s", c.name, err, text.String())
		}
	}
}

// TestFirstEndCounts: a message that comes again after it was done ended when it was done; one that was only returned has
// not ended.
func TestFirstEndCounts(t *testing.T) {
	tl := &tally{
		ends: map[string]semel.Decision{}, done: map[string]time.Time{}, causes: map[string]int{}, decisions: map[semel.Decision]int{},
	}
	at := time.Now()
	for i, d := range []semel.Decision{semel.BusyDeferred, semel.Retried, semel.Executed, semel.Replayed} {
		tl.decide(ops.EventLine{MessageID: "m1", At: at.Add(time.Duration(i) * time.Second), Decision: string(d)})
	}
	tl.decide(ops.EventLine{MessageID: "m2", At: at, Decision: string(semel.Returned)})
	if tl.ends["m1"] != semel.Executed || !tl.done["m1"].Equal(at.Add(2*time.Second)) || len(tl.ends) != 1 {
		t.Errorf("ended %v at %v", tl.ends, tl.done)
	}
}

func TestPercentiles(t *testing.T) {
	var all []float64
	for i := range 200 {
		all = append(all, float64(200-i))
	}
	if p, want := percentiles(all), (Percentiles{P50: 100, P95: 190, P99: 198, Max: 200}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	if p := percentiles(nil); p != (Percentiles{}) {
		t.Errorf("of nothing: %+v", p)
	}
	if p := percentiles([]float64{7}); p != (Percentiles{7, 7, 7, 7}) {
		t.Errorf("of one: %+v", p)
	}
}

// TestWorkersThatEndAreAnError: the error of a worker that cannot start has its last output, and nothing is left.
func TestWorkersThatEndAreAnError(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh")
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	o := good()
	o.Timeout = time.Minute
	o.Command = []string{"/bin/sh", "-c", "echo the last words >&2; exit 3"}
	_, err := Run(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(tmp + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestS4_09_WorkersAreStoppedOnce: a worker takes a second request to drain as one to stop at once, so a slow one gets only one.
func TestS4_09_WorkersAreStoppedOnce(t *testing.T) {
	if !process.HasSignals {
		t.Skip("no signals here")
	}
	c := &crew{}
	for _, script := range []string{
		`trap 'exit 0' TERM; echo ready >&2; while :; do sleep 0.02; done`,
		`trap 'test "$n" && exit 1; n=1' TERM; echo ready >&2; while [ -z "$n" ]; do sleep 0.02; done; sleep 0.3; exit 0`,
	} {
		m := &member{n: len(c.all) + 1}
		cmd := exec.Command("sh", "-c", script) //nolint:noctx // the crew ends it
		cmd.Stderr = &m.out
		var err error
		if m.Process, err = process.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Kill)
		if _, err := m.Await(t.Context(), &m.out, process.Contains("ready")); err != nil {
			t.Fatal(err)
		}
		c.all = append(c.all, m)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}

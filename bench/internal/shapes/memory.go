package shapes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/memory"
)

// engine is the state machine with a queue and a store that hand out what was made before, without goroutines: what a
// message costs from fetch to settle. BenchmarkMachine of this package measures it.
func engine() harness.Measure {
	const pkg = "bench/internal/shapes"
	return harness.Measure{
		Name: "semel-engine-alone", Title: "semel, engine alone, no goroutines", Kind: harness.Semel, Unit: "messages", N: 100000,
		Settings: "go test -bench Machine ./" + pkg,
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkMachine$", "-benchmem",
				"-benchtime", fmt.Sprintf("%dx", e.N), "github.com/semel-dev/semel/"+pkg)
			cmd.Env = append(os.Environ(), "GOWORK=off")
			out, err := cmd.Output()
			if err != nil {
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					err = fmt.Errorf("%w: %s", err, exit.Stderr)
				}
				return s, err
			}
			s = harness.Sample{Done: e.N, Values: map[string]float64{}}
			for line := range strings.Lines(string(out)) {
				var name string
				var n, ns, bytes, allocs float64
				_, err := fmt.Sscanf(line, "%s %f %f ns/op %f B/op %f allocs/op", &name, &n, &ns, &bytes, &allocs)
				if err == nil {
					s.Values["ns"], s.Values["allocs"], s.Values["bytes"] = ns, allocs, bytes
					s.Wall = time.Duration(ns * n)
					s.Client = s.Wall // one goroutine
				}
			}
			if len(s.Values) == 0 {
				return s, fmt.Errorf("no figures in the output of go test: %s", out)
			}
			return s, nil
		},
	}
}

// consumer is a whole consumer, with its goroutines, on the memory adapters.
func consumer() harness.Measure {
	return harness.Measure{
		Name: "semel-memory", Title: "semel, whole consumer on the memory adapters", Kind: harness.Semel, Unit: "messages",
		N: 200000, Settings: "Concurrency 256, a handler that does nothing",
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			db := memory.Open()
			q, w := db.Queue("orders"), e.Work()
			if err := send(ctx, q, w); err != nil {
				return s, err
			}
			c, err := semel.New(semel.Config{
				Queue: q, Store: db.Store(), Concurrency: 256, Limit: len(w.Deliveries),
				Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			})
			if err != nil {
				return s, err
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			stop := e.Watch()
			if err := c.Run(ctx); err != nil {
				return s, err
			}
			s.Usage = stop()
			runtime.ReadMemStats(&after)
			s.Done, s.Deliveries = int(c.Summary().Received), len(w.Deliveries)
			if n := c.Summary(); n.Effects != int64(e.N) {
				return s, fmt.Errorf("%d messages, and %+v", e.N, n)
			}
			s.Values = map[string]float64{
				"ns": float64(s.Wall.Nanoseconds()) / float64(s.Done), "allocs": float64(after.Mallocs-before.Mallocs) / float64(s.Done),
			}
			return s, nil
		},
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/load"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func (a *app) benchCommand() *cobra.Command {
	o := load.Options{HandlerTime: 5 * time.Millisecond, Visibility: 10 * time.Second, Timeout: 5 * time.Minute}
	c := &cobra.Command{
		Use: "bench", Short: "Load test: send, consume with worker processes, measure and count", Args: noArgs,
		Long: `bench sends messages to a queue of its own on any pair of queue and store, consumes them with worker processes of this
program, and prints throughput, latencies, duplicates, errors and the counts that have to come out: sent = done, one
effect a key (with --same-key one run, the rest suppressed), queue empty, no ERROR in the logs. Exit status 0, or 3 when a
count does not come out. What it made is removed. The figures are of this machine and this run.`,
		Annotations: map[string]string{"settings": "places"},
		Example: `  semel bench --n 1000
  semel bench --same-key --n 50
  semel bench --n 5000 --workers 4 --handler-time 20ms --store postgres://postgres@localhost/test
  semel bench --on aws --n 200 -o json | jq .end_to_end_ms`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), o) },
	}
	f := c.Flags()
	f.IntVar(&o.N, "n", 100, "number of messages")
	f.BoolVar(&o.SameKey, "same-key", false, "all of them have one key: one may take effect")
	f.IntVar(&o.Workers, "workers", 3, "number of worker processes")
	f.IntVar(&o.Concurrency, "concurrency", semel.DefaultConcurrency, "handlers that run at once in a worker")
	config.DurationVar(f, &o.HandlerTime, "handler-time", "how long a handler takes")
	config.DurationVar(f, &o.Visibility, "visibility", "visibility timeout of the queue; a duplicate whose key is at work elsewhere waits for up to 0.9 of it")
	f.Float64Var(&o.Rate, "rate", 0, "messages per second (0: as fast as possible; end to end is then mostly waiting)")
	whereFlags(f, &o.Where)
	config.DurationVar(f, &o.Timeout, "timeout", "how long the workers may take for everything that is sent")
	f.BoolVar(&o.Keep, "keep", false, "keep what was made, and the workers' logs and events")
	return c
}

func (a *app) bench(ctx context.Context, o load.Options) error {
	err := o.Check()
	if bad := (*load.UsageError)(nil); errors.As(err, &bad) {
		return output.Usage("--%s: %s", bad.Flag, bad.Problem).WithHint("semel bench --help")
	}
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	o.Command = []string{exe}
	progress, done := a.progress()
	o.Progress = progress
	res, err := load.Run(ctx, o)
	done()
	if err != nil {
		return err
	}
	if err := a.p.Object(res, func(b *strings.Builder) { _ = res.WriteText(b) }); err != nil {
		return err
	}
	if !res.OK() {
		return &output.Error{Code: output.CodeNegative, Err: errors.New("a count did not come out"), Silent: true}
	}
	return nil
}

// Command sqlite measures the SQLite adapter against SQLite itself, in one interleaved run: only the ratio counts, the
// figures move with the machine.
//
//	raw      conditional inserts (INSERT … ON CONFLICT DO NOTHING) of the messages' ids into a hand-written inbox table,
//	         -batch per transaction, one caller through database/sql: what SQLite can do
//	raw16    the same with 16-byte keys in a clustered table, the leanest there is
//	adapter  receive, claim, commit (effect row, record, ack in one file), -batch per call, -workers callers
//	consumer the same through semel.New, with a handler that queues its effect
//	claim    claims and completions alone, one key per call, -callers callers
//
// Every round checks its ledger: as many rows as distinct ids as messages. A line of JSON per measurement goes to
// standard output, a table to standard error. With -gate the exit code is 1 when the median ratio is below it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type config struct {
	n, batch, rounds, workers, callers int
	body                               int
	dup                                float64
	dir                                string
}

// measurement is one line of output.
type measurement struct {
	Shape   string  `json:"shape"`
	Round   int     `json:"round"`
	N       int     `json:"n"`
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"`
	PerSec  float64 `json:"per_second"`
	Ratio   float64 `json:"ratio_to_raw,omitempty"`
	CPU     float64 `json:"cpu_us_per_item"`
}

// shape is one way to do the work: it returns the number of items that it did and the time that it took.
type shape struct {
	name string
	run  func(ctx context.Context, c config, path string) (n int, u usage, err error)
}

// usage is time on the clock and time of the processors.
type usage struct{ wall, cpu time.Duration }

// stopwatch starts to measure; the returned function stops.
func stopwatch() func() usage {
	begin, before := time.Now(), cpu()
	return func() usage { return usage{time.Since(begin), cpu() - before} }
}

func main() {
	var c config
	flag.IntVar(&c.n, "n", 50000, "messages per round and shape")
	flag.IntVar(&c.batch, "batch", 100, "items per call, rows per raw transaction")
	flag.IntVar(&c.rounds, "rounds", 5, "interleaved rounds")
	flag.IntVar(&c.workers, "workers", 8, "callers of the adapter shape")
	flag.IntVar(&c.callers, "callers", 256, "callers of the claim shape")
	flag.IntVar(&c.body, "body", 300, "bytes of a message body")
	flag.Float64Var(&c.dup, "dup", 0.2, "share of messages that are sent twice, at random distance")
	flag.StringVar(&c.dir, "dir", "", "directory of the databases (default: a temporary one)")
	only := flag.String("only", "raw,raw16,adapter,consumer,claim", "shapes to run")
	gate := flag.Float64("gate", 0, "least median ratio of the adapter shape; 0 = none")
	flag.Parse()
	if err := run(context.Background(), c, *only, *gate); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, only string, gate float64) (err error) {
	if c.n < 1 || c.batch < 1 || c.rounds < 1 || c.workers < 1 || c.callers < 1 || c.dup < 0 || c.dup > 1 {
		return errors.New("-n, -batch, -rounds, -workers and -callers must be at least 1, -dup in [0, 1]")
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "semel-bench"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	}
	var all []measurement
	for round := 1; round <= c.rounds; round++ {
		raw := 0.0
		for _, s := range shapes {
			if !slices.Contains(strings.Split(only, ","), s.name) {
				continue
			}
			m, err := measure(ctx, c, s, round)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", s.name, round, err)
			}
			if s.name == "raw" {
				raw = m.PerSec
			} else if raw > 0 {
				m.Ratio = m.PerSec / raw
			}
			if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
				return err
			}
			all = append(all, m)
		}
	}
	return report(all, gate)
}

func measure(ctx context.Context, c config, s shape, round int) (m measurement, err error) {
	path := filepath.Join(c.dir, fmt.Sprintf("%s-%d.db", s.name, round))
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if rerr := os.Remove(path + suffix); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}()
	n, u, err := s.run(ctx, c, path)
	if err != nil {
		return m, err
	}
	return measurement{
		Shape: s.name, Round: round, N: n, Batch: c.batch, Seconds: u.wall.Seconds(),
		PerSec: float64(n) / u.wall.Seconds(), CPU: u.cpu.Seconds() * 1e6 / float64(n),
	}, nil
}

func report(all []measurement, gate float64) error {
	fmt.Fprintf(os.Stderr, "\n%-10s %12s %12s %14s\n", "shape", "per second", "ratio to raw", "CPU µs/item")
	for _, s := range shapes {
		var rate, ratio, use []float64
		for _, m := range all {
			if m.Shape == s.name {
				rate, ratio, use = append(rate, m.PerSec), append(ratio, m.Ratio), append(use, m.CPU)
			}
		}
		if len(rate) == 0 {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-10s %12.0f %12.2f %14.1f\n", s.name, median(rate), median(ratio), median(use))
		if s.name == "adapter" && gate > 0 && median(ratio) < gate {
			return fmt.Errorf("median ratio %.2f is below the gate %.2f", median(ratio), gate)
		}
	}
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

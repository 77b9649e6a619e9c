// Command bench compares semel with the ways in which others make messages take effect once, and with what machine and
// servers can do at all: on the same servers, in interleaved rounds, because only ratios inside one round count.
//
//	go run . -list                                   the measures
//	go run . -measure b2,semel-pg-queued-1           some of them, or a kind: peer, limit, semel; all but the long ones, languages and brokers: all
//	go run . -o results.jsonl -report ../docs/benchmarks.md -gate
//	go run . -from results.jsonl -report ../docs/benchmarks.md
//
// A line of JSON per measure and round goes to standard output or to -o, progress to standard error. It starts its own
// PostgreSQL and Redis in a temporary directory and removes them.
//
// Exit codes: 1 = it failed (also: a ledger was wrong), 2 = the flags are wrong, 3 = a ratio is below its gate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"github.com/semel-dev/semel/bench/internal/brokers"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/languages"
	"github.com/semel-dev/semel/bench/internal/limits"
	"github.com/semel-dev/semel/bench/internal/peers"
	"github.com/semel-dev/semel/bench/internal/report"
	"github.com/semel-dev/semel/bench/internal/shapes"
)

// config is the command line.
type config struct {
	measure, out, from, page, dir, profile string
	n, rounds                              int
	scale                                  float64
	gate, list, table                      bool
}

var (
	errUsage = errors.New("usage")
	errGate  = errors.New("below the gate")
)

func main() { os.Exit(command()) }

// command is main with an exit code.
func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c config
	flag.StringVar(&c.measure, "measure", "all", "measures or kinds, separated by commas")
	flag.IntVar(&c.n, "n", 0, "messages per round and measure; 0 = each measure's own number")
	flag.Float64Var(&c.scale, "scale", 1, "factor of the measures' own numbers")
	flag.IntVar(&c.rounds, "rounds", 3, "interleaved rounds")
	flag.StringVar(&c.out, "o", "-", "file for the lines of JSON; - is standard output")
	flag.StringVar(&c.from, "from", "", "read the lines from these files, separated by commas, and measure nothing")
	flag.StringVar(&c.page, "report", "", "write the report to this Markdown file, and the chart beside it")
	flag.StringVar(&c.dir, "dir", "", "directory of the servers and files, on a disk (default: that for temporary files)")
	flag.StringVar(&c.profile, "cpuprofile", "", "write a profile of this process to this file")
	flag.BoolVar(&c.gate, "gate", false, "exit with 3 when a ratio is below its gate")
	flag.BoolVar(&c.table, "table", false, "print the tables of languages and brokers, and the goals that were measured")
	flag.BoolVar(&c.list, "list", false, "list the measures and exit")
	flag.Parse()
	err := run(ctx, c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	switch {
	case errors.Is(err, errGate):
		return 3
	case errors.Is(err, errUsage):
		return 2
	}
	return 1
}

func run(ctx context.Context, c config, log *slog.Logger) error {
	all := slices.Concat(shapes.All(), peers.All(), limits.All(), languages.All(), brokers.All())
	if c.list {
		for _, m := range all {
			fmt.Printf("%-24s %-6s %s\n", m.Name, m.Kind, m.Title)
		}
		return nil
	}
	if c.rounds < 1 || c.n < 0 || c.scale <= 0 || flag.NArg() > 0 {
		return fmt.Errorf("%w: -rounds must be at least 1, -n at least 0, -scale above 0, and there are no arguments", errUsage)
	}
	var about harness.About
	var rows []harness.Row
	var err error
	if c.from != "" {
		about, rows, err = load(strings.Split(c.from, ","))
	} else {
		about, rows, err = take(ctx, c, all, log)
	}
	if err != nil {
		return err
	}
	if c.page != "" {
		if err := write(c.page, about, all, rows); err != nil {
			return err
		}
	}
	if c.table {
		if err := report.Table(os.Stdout, about, all, rows); err != nil {
			return err
		}
	}
	if !c.gate {
		return nil
	}
	below, missing := report.Below(rows)
	for _, title := range missing {
		log.Warn("NOT MEASURED: its gate was not checked", "goal", title)
	}
	if len(below) > 0 {
		return fmt.Errorf("%w:\n  %s", errGate, strings.Join(below, "\n  "))
	}
	return nil
}

// choose finds the measures by name or kind.
func choose(all []harness.Measure, names string) ([]harness.Measure, error) {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		known := name == "all"
		for _, m := range all {
			own := m.Kind == harness.Language || m.Kind == harness.Broker
			if name == m.Name || !m.Long && (name == "all" && !own || name == string(m.Kind)) {
				wanted[m.Name], known = true, true
			}
		}
		if !known {
			return nil, fmt.Errorf("%w: there is no measure %q; -list shows them", errUsage, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m harness.Measure) bool { return !wanted[m.Name] }), nil
}

// take measures.
func take(ctx context.Context, c config, all []harness.Measure, log *slog.Logger) (a harness.About, rows []harness.Row, err error) {
	chosen, err := choose(all, c.measure)
	if err != nil {
		return a, nil, err
	}
	out := io.Writer(os.Stdout)
	if c.out != "-" {
		f, openErr := os.Create(c.out)
		if openErr != nil {
			return a, nil, openErr
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	servers, err := harness.Start(ctx, c.dir)
	if err != nil {
		return a, nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	if a, err = servers.Describe(ctx); err != nil {
		return a, nil, err
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(map[string]any{"about": a}); err != nil {
		return a, nil, err
	}
	if c.profile != "" {
		f, openErr := os.Create(c.profile)
		if openErr != nil {
			return a, nil, openErr
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return a, nil, err
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	err = harness.Run(ctx, servers, harness.Options{
		Measures: chosen, Rounds: c.rounds, N: c.n, Scale: c.scale, Log: log,
		Each: func(r harness.Row) error {
			rows = append(rows, r)
			return lines.Encode(r)
		},
	})
	return a, rows, err
}

// load reads the rows of earlier runs.
func load(paths []string) (a harness.About, rows []harness.Row, err error) {
	var readers []io.Reader
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return a, nil, err
		}
		defer f.Close()
		readers = append(readers, f)
	}
	return report.Read(io.MultiReader(readers...))
}

// write writes the page and the chart.
func write(path string, about harness.About, all []harness.Measure, rows []harness.Row) (err error) {
	chart := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	create := func(path string, content func(io.Writer) error) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(content(f), f.Close())
	}
	return errors.Join(
		create(path, func(w io.Writer) error { return report.Page(w, about, all, rows, filepath.Base(chart)) }),
		create(chart, func(w io.Writer) error { return report.Chart(w, about, all, rows) }),
	)
}

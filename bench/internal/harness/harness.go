// Package harness runs measures in interleaved rounds: every round runs every measure once, each in a fresh database of
// the same server, so that ratios can be taken inside a round.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/bench/internal/load"
)

// Kind groups measures in the report.
type Kind string

// The kinds of measures.
const (
	Peer   Kind = "peer"   // the standard work done by other libraries
	Limit  Kind = "limit"  // the limits of the machine and the servers
	Semel  Kind = "semel"  // the standard work done by semel
	Cache  Kind = "cache"  // the gain of a cache before the store
	Window Kind = "window" // a long window of keys on one machine
	// Those that run only when they are asked for, and have a table of their own.
	Language Kind = "language" // handlers in other languages
	Broker   Kind = "broker"   // queues of brokers, effects in PostgreSQL
)

// Measure is one figure that can be taken.
type Measure struct {
	// Name identifies it on the command line and in the output; Title is its line in the report.
	Name, Title string
	Kind        Kind
	// Unit is what is counted: effects, rows, commits, operations.
	Unit string
	// Settings tell how it was tuned, for the report.
	Settings string
	// N is the number of messages (or other units) of one round.
	N int
	// Long measures run only when they are asked for by name.
	Long bool
	// Inexact measures are reported even when an effect happened twice: they do not guarantee otherwise.
	Inexact bool
	Run     func(ctx context.Context, e *Env) (Sample, error)
}

// Long is the same measure with n units as NAME-long. It runs only when it is asked for by name.
func Long(m Measure, n int) Measure {
	m.Name, m.Title, m.N, m.Long = m.Name+longSuffix, fmt.Sprintf("%s, %d,000 messages", m.Title, n/1000), n, true
	return m
}

const longSuffix = "-long"

// Beside is the name of the measure that runs in the same rounds as m and has as many units: of, or its long variant.
func (m *Measure) Beside(of string) string {
	if m.Long {
		return of + longSuffix
	}
	return of
}

// Sample is the outcome of one run of a measure.
type Sample struct {
	// Done counts the units, Deliveries the deliveries they took (0 = not of this measure).
	Done, Deliveries int
	Usage
	// P50 is the median time of one unit, where a measure takes it.
	P50 time.Duration
	// Ledger is checked: as many rows as distinct ids as messages. Nil = this measure has no effects.
	Ledger *load.Ledger
	// Values are further figures of a measure, by name.
	Values map[string]float64
}

// Row is one line of the output: one measure in one round.
type Row struct {
	Measure    string  `json:"measure"`
	Kind       Kind    `json:"kind"`
	Unit       string  `json:"unit"`
	Round      int     `json:"round"`
	N          int     `json:"n"`
	Done       int     `json:"done"`
	Deliveries int     `json:"deliveries,omitempty"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	ClientCPU  float64 `json:"client_cpu_us"`
	ServerCPU  float64 `json:"server_cpu_us"`
	P50        float64 `json:"p50_us,omitempty"`
	// WAL is what PostgreSQL wrote ahead, in bytes per unit.
	WAL    float64            `json:"wal_bytes,omitempty"`
	Ledger *load.Ledger       `json:"ledger,omitempty"`
	Values map[string]float64 `json:"values,omitempty"`
	// Load is the load average before the run that the row is of; a report reads it from the run's first line.
	Load float64 `json:"-"`
}

// CPU is the processor time of client and servers, in µs per unit.
func (r *Row) CPU() float64 { return r.ClientCPU + r.ServerCPU }

// Env is what a measure gets to run in.
type Env struct {
	N     int
	Round int
	// Dir is an empty directory for files.
	Dir     string
	servers *Servers
}

// Work is the standard work of this round.
func (e *Env) Work() load.Work { return load.New(e.N, uint64(e.Round)) }

// Options say what Run does.
type Options struct {
	Measures []Measure
	Rounds   int
	// N replaces the measures' own numbers of units; 0 = theirs. Scale multiplies theirs; 0 = 1.
	N     int
	Scale float64
	// Each is called with every row as it comes.
	Each func(Row) error
	Log  *slog.Logger
}

// ErrLeftOut is in the error of a measure that needs something that this machine does not have.
var ErrLeftOut = errors.New("left out")

// Until looks every few milliseconds, until done reports true.
func Until(ctx context.Context, done func(context.Context) (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run runs all rounds. Odd rounds go forward through the measures and even ones backward, so that none always follows
// the same neighbour. It ends with the first measure that fails, or whose ledger is wrong.
func Run(ctx context.Context, s *Servers, o Options) error {
	for round := 1; round <= o.Rounds; round++ {
		order := slices.Clone(o.Measures)
		if round%2 == 0 {
			slices.Reverse(order)
		}
		for i := range order {
			m := &order[i]
			row, err := one(ctx, s, m, units(m, o), round)
			if errors.Is(err, ErrLeftOut) {
				o.Log.Warn("LEFT OUT, NOT MEASURED", "measure", m.Name, "err", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("measure %s, round %d: %w", m.Name, round, err)
			}
			o.Log.Info("measured", "round", round, "measure", m.Name, "per_second", int(row.PerSecond),
				"cpu_us", int(row.CPU()), "seconds", fmt.Sprintf("%.1f", row.Seconds))
			if err := o.Each(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func units(m *Measure, o Options) int {
	n := m.N
	if o.Scale > 0 {
		n = int(float64(n) * o.Scale)
	}
	if o.N > 0 {
		n = o.N
	}
	return max(n, 1)
}

func one(ctx context.Context, s *Servers, m *Measure, n, round int) (row Row, err error) {
	dir, err := os.MkdirTemp(s.dir, m.Name+"-")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// What an earlier measure left to collect or to write back is not this one's.
	runtime.GC()
	debug.FreeOSMemory()
	if err := s.settle(ctx); err != nil {
		return row, err
	}
	sample, err := m.Run(ctx, &Env{N: n, Round: round, Dir: dir, servers: s})
	if err != nil {
		return row, err
	}
	if l := sample.Ledger; l != nil && !l.Exact(n) && !m.Inexact {
		return row, fmt.Errorf("the figure is refused: %d messages left %d rows with %d ids in the ledger", n, l.Rows, l.IDs)
	}
	return Row{
		Measure: m.Name, Kind: m.Kind, Unit: m.Unit, Round: round, N: n, Done: sample.Done, Deliveries: sample.Deliveries,
		Seconds: sample.Wall.Seconds(), PerSecond: float64(sample.Done) / sample.Wall.Seconds(),
		ClientCPU: micros(sample.Client) / float64(sample.Done), ServerCPU: micros(sample.Server) / float64(sample.Done),
		P50: micros(sample.P50), WAL: float64(sample.WAL) / float64(sample.Done), Ledger: sample.Ledger, Values: sample.Values,
	}, nil
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// Count writes a number with its noun: 1 caller, 32 callers.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Median is the middle of the values, the mean of the two middle ones of an even number, and zero of none.
func Median[T ~float64 | ~int64](values []T) T {
	s := slices.SortedFunc(slices.Values(values), cmp.Compare)
	n := len(s)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[n/2]
}

// Callers has n goroutines share e.N calls of do, and watches the machine meanwhile. P50 is the median time of one call.
// The first error ends all of them.
func (e *Env) Callers(ctx context.Context, n int, do func(context.Context) error) (Sample, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	times := make([]time.Duration, e.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	stop := e.Watch()
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(e.N) && ctx.Err() == nil; i = next.Add(1) - 1 {
				begin := time.Now()
				if err := do(ctx); err != nil {
					fail(err)
				}
				times[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return Sample{Done: e.N, Usage: stop(), P50: Median(times)}, context.Cause(ctx)
}

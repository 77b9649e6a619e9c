package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/sim"
)

func (a *app) verifyCommand() *cobra.Command {
	var o sim.Options
	var replay, replayOutbox uint64
	var sagas, crashPoints bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Simulate the engine under faults and check the protocol's invariants",
		Long: `verify runs the engine of semel work in a deterministic simulation, in virtual time: several workers with a modelled queue,
store and outside world. It adds crashes before and after every operation, lost and late responses, stalls past the lease,
duplicates, clock jumps and rolling deploys. One schedule in ten also runs relays, which carry an outbox to a modelled sender. It
checks every history against the invariants of the protocol. To show that the checks work, it also plants known mistakes, and must
find each. One seed is one schedule. Exit status 3: an invariant is violated, or a mistake is not found.`,
		Example: `  semel verify
  semel verify --seeds 1000000 -o json
  semel verify --replay 4711`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("replay") {
				if sagas {
					return sim.ReplaySaga(replay, a.p.Out)
				}
				return sim.Replay(replay, a.p.Out)
			}
			if cmd.Flags().Changed("replay-outbox") {
				return sim.ReplayOutbox(replayOutbox, a.p.Out)
			}
			if crashPoints {
				o.CrashPoints = sim.AllCrashPoints
			}
			return a.verify(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Seeds, "seeds", 100_000, "number of random schedules")
	f.Uint64Var(&o.First, "first", 1, "the first seed")
	f.BoolVar(&crashPoints, "crash-points", true, "plant each kind of fault at every single operation of base schedules")
	f.BoolVar(&o.Mutants, "mutants", true, "plant known mistakes, and look for each")
	f.IntVar(&o.Workers, "parallel", 0, "goroutines (default: number of CPUs)")
	f.DurationVar(&o.Budget, "budget", 0, "stop after this time with what there is")
	f.Uint64Var(&replay, "replay", 0, "print the history of one seed")
	f.Uint64Var(&replayOutbox, "replay-outbox", 0, "print the history of one seed of the outbox")
	f.BoolVar(&sagas, "saga", false, "with --replay: the seed is one of a saga")
	return c
}

// verification is what is printed.
type verification struct {
	Seeds       int             `json:"seeds"`
	CrashPoints int             `json:"crash_points"`
	Stats       sim.Stats       `json:"stats"`
	Outbox      sim.OutboxStats `json:"outbox"`
	Sagas       sim.Sagas       `json:"sagas"`
	Violations  []found         `json:"violations"`
	Mutants     []mutant        `json:"mutants"`
	ElapsedMS   int64           `json:"elapsed_ms"`
	Verdict     string          `json:"verdict"`
}

type found struct {
	Invariant string `json:"invariant"`
	Seed      uint64 `json:"seed"`
	Detail    string `json:"detail"`
	Trace     string `json:"trace"`
}

type mutant struct {
	Name      string `json:"name"`
	Found     bool   `json:"found"`
	Invariant string `json:"invariant,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
	Tried     int    `json:"seeds_tried"`
	ElapsedMS int64  `json:"elapsed_ms"`
}

func (a *app) verify(ctx context.Context, o sim.Options) error {
	if o.Seeds < 0 {
		return output.Usage("--seeds %d is negative", o.Seeds)
	}
	var done func()
	o.Progress, done = a.progress()
	r := sim.Run(ctx, o)
	done()
	v := verification{
		Seeds: r.Seeds, CrashPoints: r.CrashPoints, Stats: r.Stats, Sagas: r.Sagas, ElapsedMS: r.Elapsed.Milliseconds(), Verdict: "held",
		Outbox:     r.Outbox,
		Violations: []found{}, Mutants: []mutant{},
	}
	if !r.OK() {
		v.Verdict = "broken"
	}
	for _, x := range r.Violations {
		v.Violations = append(v.Violations, found{Invariant: x.Invariant, Seed: x.Seed, Detail: x.Detail, Trace: x.Trace})
	}
	for _, m := range r.Mutants {
		v.Mutants = append(v.Mutants, mutant{m.Name, m.Found, m.Invariant, m.Seed, m.Tried, m.Elapsed.Milliseconds()})
	}
	if err := a.p.Object(v, v.write); err != nil {
		return err
	}
	switch {
	case v.Verdict != "held":
		return &output.Error{Code: output.CodeNegative, Err: errors.New("the simulation did not hold"), Silent: true}
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return nil
}

func (v verification) write(b *strings.Builder) {
	s := v.Stats
	fmt.Fprintf(b, "%d random schedules and %d planted crash points in %s\n", v.Seeds, v.CrashPoints,
		(time.Duration(v.ElapsedMS) * time.Millisecond).Round(time.Millisecond))
	fmt.Fprintf(b, "%d messages, %d deliveries, %d handler runs, %d crashes, %d stalls, %d responses lost, %d requests late, %d takeovers\n",
		s.Messages, s.Deliveries, s.Runs, s.Crashes, s.Stalls, s.Lost, s.Late, s.Takeovers)
	g := v.Sagas
	fmt.Fprintf(b, "sagas: %d random schedules and %d planted crash points: %d attempts, %d crashes, %d stalls, %d runs completed, "+
		"%d compensated, %d parked\n", g.Seeds, g.CrashPoints, g.Attempts, g.Crashes, g.Stalls, g.Completed, g.Compensated, g.Parked)
	x := v.Outbox
	fmt.Fprintf(b, "outbox: %d schedules, %d crash points; %d messages emitted, %d published, %d copies, %d parked, %d crashes, %d stalls, "+
		"%d responses lost, %d requests late\n", x.Schedules, x.CrashPoints, x.Emitted, x.Published, x.Copies, x.Parked, x.Crashes, x.Stalls, x.Lost, x.Late)
	if len(v.Mutants) > 0 {
		b.WriteString("\nplanted mistakes\n")
	}
	for _, m := range v.Mutants {
		verdict := fmt.Sprintf("found: %-4s seed %d, %d tried, %d ms", m.Invariant, m.Seed, m.Tried, m.ElapsedMS)
		if !m.Found {
			verdict = fmt.Sprintf("NOT FOUND in %d seeds", m.Tried)
		}
		fmt.Fprintf(b, "  %-58s %s\n", m.Name, verdict)
	}
	for _, x := range v.Violations {
		fmt.Fprintf(b, "\nVIOLATION of %s at seed %d: %s\n%s", x.Invariant, x.Seed, x.Detail, x.Trace)
	}
	fmt.Fprintf(b, "\n%d violations: %s\n", len(v.Violations), v.Verdict)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/play"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/rig"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// HiddenCommand is the subcommand that the command line must route to worker.Main.
const HiddenCommand = "__lab-worker"

// Options say how scenarios are run. The zero value of everything is the default.
type Options struct {
	// Guards are the runs, in their order. Defaults to off and on.
	Guards []plan.Guard
	// Seed decides load and faults. Defaults to a drawn one, which the verdict names.
	Seed uint64
	// Report is where the HTML report goes. Defaults to none.
	Report string
	// Store is the postgres:// URL of a database, in which each run makes a schema of its own. Defaults to SQLite files.
	Store string
	// Keep keeps databases and events files; Verdict.Kept names the folder.
	Keep bool
	// Repeat is the command line that makes the same schedule again; %d is the seed.
	Repeat string
	// Command starts a worker process. Defaults to the own binary with the argument HiddenCommand.
	Command []string
	// Env is added to the environment of the worker processes.
	Env []string
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Guards) == 0 {
		o.Guards = []plan.Guard{plan.GuardOff, plan.GuardOn}
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64N(100_000)
	}
	if len(o.Command) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the own program: %w", err)
		}
		o.Command = []string{exe, HiddenCommand}
	}
	return o, nil
}

// Run runs a scenario once for each guard, and writes the report when one is asked for. progress gets short lines for a
// person; it may be nil. A verdict that is not as expected is no error: see [verdict.Verdict.OK]. When ctx ends, all
// workers are killed and the error is its cause.
func Run(ctx context.Context, s plan.Scenario, o Options, progress func(string)) (v verdict.Verdict, err error) {
	if o, err = o.withDefaults(); err != nil {
		return verdict.Verdict{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	dir, err := os.MkdirTemp("", "semel-"+s.Name+"-")
	if err != nil {
		return verdict.Verdict{}, fmt.Errorf("make a folder for the run: %w", err)
	}
	if o.Keep {
		v.Kept = dir
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	v.Story = &verdict.Story{Scenario: s, Seed: o.Seed, Repeat: o.Repeat, Place: "one SQLite file"}
	var made *rig.Schemas
	if o.Store != "" {
		v.Story.Place = "one schema of a PostgreSQL database"
		made = rig.NewSchemas(o.Store)
		if !o.Keep {
			defer func() { err = errors.Join(err, made.Drop(ctx)) }()
		}
	}
	for _, g := range o.Guards {
		runDir := filepath.Join(dir, string(g))
		place := filepath.Join(runDir, DatabaseFile)
		if made != nil {
			if place, err = made.Make(ctx, string(g)); err != nil {
				return v, err
			}
			if o.Keep {
				v.KeptIn = append(v.KeptIn, open.Redact(place))
			}
		}
		p := s.Plan(o.Seed, g)
		res, err := play.Run(ctx, play.Stage{
			Scenario: s, Plan: p, Dir: runDir, Place: place, Command: o.Command, Env: o.Env, Progress: progress,
		})
		if err != nil {
			return v, fmt.Errorf("run %s with the guard %s (seed %d): %w", s.Name, g, o.Seed, err)
		}
		v.Add(s, p, res)
	}
	if o.Report != "" {
		v.Report = o.Report
		if err := report.WriteReport(o.Report, v); err != nil {
			return v, err
		}
	}
	return v, nil
}

// DatabaseFile is the name of a run's SQLite file.
const DatabaseFile = "demo.db"

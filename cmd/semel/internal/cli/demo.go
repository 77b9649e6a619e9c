package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
)

func (a *app) demoCommand() *cobra.Command {
	o := lab.DefaultDemo()
	var console bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "See customers charged twice without the guard, and once with it",
		Long: `Runs the main job on the embedded default, with nothing installed: worker processes take orders from one SQLite
file and charge each customer 100,000 yen, while duplicates arrive and processes are killed with SIGKILL. First with
the guard off, the common naive consumer, killed after the charge and before the ack; then with it on, and more kills.
The verdict comes from the ledger, not from semel's records. Exit status 0 only if every charge was made exactly once
with the guard on and none was lost; 3 otherwise.`,
		Example: `  semel demo
  semel demo --seed 42 --orders 500 --workers 4
  semel demo --store postgres://postgres@localhost/test
  semel demo -o json | jq '.runs[] | {guard, duplicated, lost}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), o, console) },
	}
	f := c.Flags()
	f.IntVar(&o.Orders, "orders", o.Orders, "number of orders")
	f.IntVar(&o.Workers, "workers", o.Workers, "number of worker processes")
	f.IntVar(&o.Kills, "kills", o.Kills, "kills that both runs share")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of load and faults; the same seed makes the same schedule (default: drawn)")
	f.DurationVar(&o.Visibility, "visibility", o.Visibility, "visibility timeout of the queue")
	f.StringVar(&o.Report, "report", "demo.html", "HTML report with a timeline; empty for none")
	f.StringVar(&o.Where.Store, "store", "", "postgres:// or mysql:// URL of a database server to run it in: each run makes a schema, and drops it (default: SQLite files)")
	f.BoolVar(&o.Keep, "keep", false, "keep the databases, to look at with semel records and semel queue")
	f.BoolVar(&console, "console", false, "then serve the console of the guarded run on a free port of 127.0.0.1, until it is interrupted")
	return c
}

// demoConsole serves the console of a guarded run in a SQLite file.
func (a *app) demoConsole(ctx context.Context, dir string) error {
	o := &consoleOptions{listen: "127.0.0.1:0", operate: true}
	o.queue = "sqlite:" + filepath.Join(dir, string(plan.GuardOn), "demo.db") + "?queue=" + place.QueueName
	return a.console(ctx, o, func(p consolePlace) error {
		a.p.Notef("%s", p)
		return nil
	})
}

func (a *app) demo(ctx context.Context, o lab.DemoOptions, console bool) (err error) {
	keep := o.Keep
	if o.Keep = keep || console; console && o.Where.Store != "" {
		return output.Usage("--console shows a demo in SQLite files, not in --store").WithHint("--keep, then semel console --queue URL")
	}
	if o.Where.Store != "" {
		if _, err := open.InSchema(o.Where.Store, ""); err != nil {
			return err
		}
	}
	if err := checkFile("report", o.Report); err != nil {
		return err
	}
	progress, done := a.progress()
	v, err := lab.RunDemo(ctx, o, progress)
	done()
	dir := v.Kept
	if !keep && dir != "" { // kept for the console alone
		v.Kept, v.KeptIn = "", nil
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if err != nil {
		return err
	}
	switch a.p.Format {
	case output.JSONL:
		err = output.List(a.p, v.Runs, nil, nil)
	case output.JSON, output.Text, output.None:
		err = a.p.Object(v, func(b *strings.Builder) { _ = report.WriteText(b, v, a.colour(), a.width()) })
	}
	if err == nil && console {
		err = a.demoConsole(ctx, dir)
	}
	if err != nil {
		return err
	}
	if !v.OK() {
		return &output.Error{Code: output.CodeNegative, Err: errors.New("the runs did not come out as expected"), Silent: true}
	}
	return nil
}

// checkFile refuses a file that could not be written when everything has been done.
func checkFile(flag, path string) error {
	if err := report.Check(path); err != nil {
		return output.Usage("--%s: %w", flag, err).WithHint("--%s with a file in a folder that is there and can be written", flag)
	}
	return nil
}

// progress shows one changing line on a terminal, and nothing elsewhere.
func (a *app) progress() (show func(string), done func()) {
	f := output.File(a.p.Err)
	if a.p.Format == output.None || !output.Terminal(f) {
		return func(string) {}, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(line string) { _, _ = fmt.Fprint(f, clearLine+words.Printable(line, 0)) }, func() { _, _ = fmt.Fprint(f, clearLine) }
}

// colour reports whether data on stdout may be coloured.
func (a *app) colour() bool { return output.Colour(output.File(a.p.Out)) }

// width is that of the terminal, 80 where there is none.
func (a *app) width() int {
	if f := output.File(a.p.Out); f != nil {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

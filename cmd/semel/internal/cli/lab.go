package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/lab"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func (a *app) labCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Live through duplicates, crashes, races and poison, without the guard and with it",
		Long: `Runs scenarios with real worker processes and planned faults. With the guard off it is the consumer that people
write by hand, with the hole that the scenario is about; with the guard on it is semel. The verdict comes from a ledger
that knows nothing of semel's records.`,
		Annotations: map[string]string{"settings": "places"},
		Args:        noArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.labListCommand(), a.labRunCommand(), a.labAttackCommand(), a.labUpCommand(), a.labDownCommand(), a.labValidateCommand())
	return c
}

// labEntry is one line of `semel lab list`.
type labEntry struct {
	Name  string      `json:"name"`
	Title string      `json:"title"`
	Asks  string      `json:"asks"`
	Off   plan.Design `json:"guard_off"`
	On    plan.Design `json:"guard_on"`
	Slow  bool        `json:"slow"`
}

func (a *app) labListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			var all []labEntry
			for _, s := range scenarios.All() {
				all = append(all, labEntry{s.Name, s.Title, s.Asks, s.Designs[plan.GuardOff], s.Designs[plan.GuardOn], s.Slow})
			}
			return output.List(a.p, all, []string{"SCENARIO", "GUARD OFF", "GUARD ON", "WHAT HAPPENS"}, func(e labEntry) []any {
				return []any{e.Name, e.Off, e.On, e.Title}
			})
		},
	}
}

// labRun are the flags of `semel lab run`.
type labRun struct {
	lab.Options
	all, fast, slow bool
	guard           string
	watch           string // the address of the live view
	metrics         string // a file for semel_duplicate_effects_total
	size            labSize
}

func (a *app) labRunCommand() *cobra.Command {
	var o labRun
	c := &cobra.Command{
		Use:   "run NAME…",
		Short: "Run scenarios and judge them",
		Long: `Runs scenarios, each with the guard off and on: the same load and the same faults. Exit status 0 when all came out as
expected, which for most of them means broken without the guard and held with it; 3 otherwise.`,
		Example: `  semel lab run visibility
  semel lab run --all --fast
  semel lab run zombie --guard on --seed 7 --store postgres://postgres@localhost/test
  semel lab run --all --on aws
  semel lab run crash --queue 'sqs://semel-lab?region=eu-west-1' \
    --store postgres://postgres@localhost/test
  semel lab run race -o json | jq '.runs[] | {guard, executed, replayed}'`,
		ValidArgsFunction: oneOf(scenarios.Names),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.labRun(cmd.Context(), o, args) },
	}
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, "run every scenario")
	f.BoolVar(&o.fast, "fast", false, "with --all: leave out the slow ones")
	f.BoolVar(&o.slow, "slow", false, "with --all: the slow ones only")
	f.StringVar(&o.guard, "guard", "both", "off, on or both")
	fixed(f, "guard", guards...)
	f.Uint64Var(&o.Seed, "seed", 0, "seed of load and faults; the same seed makes the same schedule (default: drawn)")
	f.StringVar(&o.Report, "report", "", "HTML report: of one scenario, or an index and a page for each of many")
	whereFlags(f, &o.Where)
	f.StringVar(&o.metrics, "metrics", "", "write semel_duplicate_effects_total of each run to this file, for node_exporter's textfile collector "+
		"(queue: the scenario, consumer: guard-off or guard-on)")
	watchFlag(f, &o.watch)
	o.size.bind(f)
	f.BoolVar(&o.Keep, "keep", false, "keep what the runs made, and their events files")
	return c
}

func (a *app) labRun(ctx context.Context, o labRun, names []string) error {
	names = o.watchAddress(names)
	chosen, err := o.scenarios(names)
	if err != nil {
		return err
	}
	if chosen, err = o.size.apply(a, chosen); err != nil {
		return err
	}
	if o.watch != "" && len(chosen) > 1 {
		return output.Usage("--watch: one page for %d scenarios", len(chosen)).WithHint("watch one at a time")
	}
	switch o.guard {
	case "off", "on":
		o.Guards = []plan.Guard{plan.Guard(o.guard)}
	default:
		if err := choice("guard", o.guard, guards); err != nil {
			return err
		}
	}
	if err := o.Where.Check(); err != nil {
		return err
	}
	if err := checkFile("report", o.Report); err != nil {
		return err
	}
	if err := checkFile("metrics", o.metrics); err != nil {
		return err
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64N(100_000)
	}
	began := time.Now()
	all, not, err := a.labScenarios(ctx, o, chosen)
	if err != nil {
		return err
	}
	if o.Report != "" && len(chosen) > 1 {
		if err := report.WriteAll(o.Report, all, o.repeat(names)); err != nil {
			return err
		}
	}
	if err := a.labPrint(all, not, o, time.Since(began)); err != nil {
		return err
	}
	if err := o.count(all); err != nil {
		return err
	}
	for _, v := range all {
		if !v.OK() {
			return &output.Error{Code: output.CodeNegative, Err: errors.New("a scenario did not come out as expected"), Silent: true}
		}
	}
	return not.asked(o.all)
}

// count leaves how many effects happened twice in each run where --metrics asks for it.
func (o labRun) count(all []verdict.Verdict) error {
	if o.metrics == "" {
		return nil
	}
	var found []duplicates
	for _, v := range all {
		for _, r := range v.Runs {
			found = append(found, duplicates{r.Scenario, "guard-" + string(r.Guard), r.Duplicated})
		}
	}
	return writeDuplicates(o.metrics, nil, found...)
}

// scenarios are those that the command line means.
func (o labRun) scenarios(names []string) ([]plan.Scenario, error) {
	switch {
	case o.all && len(names) > 0:
		return nil, output.Usage("--all and the name %s", names[0]).WithHint("give one or the other")
	case (o.fast || o.slow) && len(names) > 0:
		return nil, output.Usage("--fast and --slow choose from all scenarios, and %s is named", names[0]).
			WithHint("leave them out, or use --all without names")
	case (o.fast || o.slow) && !o.all:
		return nil, output.Usage("--fast and --slow choose from all scenarios").WithHint("add --all")
	case o.fast && o.slow:
		return nil, output.Usage("--fast and --slow together leave nothing out").WithHint("leave both away")
	case !o.all && len(names) == 0:
		return nil, output.Usage("no scenario").WithHint("name one (semel lab list), or give --all")
	}
	var out []plan.Scenario
	if o.all {
		for _, s := range scenarios.All() {
			if o.fast && s.Slow || o.slow && !s.Slow {
				continue
			}
			out = append(out, s)
		}
		return out, nil
	}
	for _, name := range names {
		s, ok := scenarios.Find(name)
		if !ok {
			hint := "semel lab list shows them"
			if near := nearest.Name(name, scenarios.Names(), 5); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, output.Usage("no scenario is called %q", name).WithHint("%s", hint)
		}
		out = append(out, s)
	}
	return out, nil
}

func (a *app) labOne(ctx context.Context, s plan.Scenario, o lab.Options, watch string, i, n int) (verdict.Verdict, error) {
	o.Repeat = "semel lab run " + s.Name + sizeFlags(s) + repeatFlags(o)
	if watch != "" {
		o.Repeat += " --watch"
		return a.labWatch(ctx, s, o, watch)
	}
	progress, done := a.progress()
	defer done()
	return lab.Run(ctx, s, o, nth(i, n, a.width(), s.Name, progress))
}

// repeatFlags are the flags that make the same schedule again.
func repeatFlags(o lab.Options) string {
	flags := fmt.Sprintf(" --seed %d", o.Seed)
	if len(o.Guards) == 1 {
		flags += " --guard " + string(o.Guards[0])
	}
	return flags + flagsOf(o.Where)
}

// flagsOf are the flags that lead to the same place, without passwords.
func flagsOf(w place.Where) (flags string) {
	if w.On != "" {
		flags += " --on " + w.On
	}
	if w.Queue != "" {
		flags += fmt.Sprintf(" --queue '%s'", open.Redact(w.Queue))
	}
	if w.Store != "" {
		flags += fmt.Sprintf(" --store '%s'", open.Redact(w.Store))
	}
	return flags
}

// labLine prints one scenario of many as soon as it has ended.
func (a *app) labLine(v verdict.Verdict) error {
	if a.p.Format != output.Text {
		return nil
	}
	return report.WriteLine(a.p.Out, v, a.colour())
}

// repeat is the command line that runs all chosen scenarios again.
func (o labRun) repeat(names []string) string {
	cmd := "semel lab run"
	if o.all {
		cmd += " --all"
	}
	for _, n := range names {
		cmd += " " + n
	}
	for flag, set := range map[string]bool{"fast": o.fast, "slow": o.slow} {
		if set {
			cmd += " --" + flag
		}
	}
	return cmd + o.size.flagsAgain() + repeatFlags(o.Options)
}

func (a *app) labPrint(all []verdict.Verdict, not notRun, o labRun, took time.Duration) error {
	if len(all) == 0 {
		return not.alone(a)
	}
	if len(all)+len(not) == 1 && a.p.Format != output.JSONL {
		return a.p.Object(all[0], func(b *strings.Builder) { _ = report.WriteText(b, all[0], a.colour(), a.width()) })
	}
	merged := verdict.Verdict{Verdict: verdict.AsExpected, NotRun: not.reasons(), Report: o.Report}
	bad := 0
	for _, v := range all {
		merged.Runs = append(merged.Runs, v.Runs...)
		if !v.OK() {
			merged.Verdict = verdict.Unexpected
			bad++
		}
	}
	if a.p.Format == output.JSONL {
		return output.List(a.p, merged.Runs, nil, nil)
	}
	return a.p.Object(merged, func(b *strings.Builder) {
		b.WriteString(strings.Repeat("-", 40) + "\n")
		fmt.Fprintf(b, "%d scenarios, %d not as expected, %s%s, seed %d\n", len(all), bad, not.count(),
			took.Round(100*time.Millisecond), o.Seed)
		if o.Report != "" {
			b.WriteString("report  " + o.Report + "\n")
		}
	})
}

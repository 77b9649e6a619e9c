package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/adapters/aws/emf"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/ops"
)

func (a *app) alertsCommand() *cobra.Command {
	t := prom.DefaultThresholds
	c := &cobra.Command{
		Use: "alerts", Short: "Print alert rules for Prometheus", Args: noArgs,
		Long: `alerts prints a rule file for Prometheus. The rules use the metrics of semel work --listen, semel serve and semel audit
--metrics. They cover effects that happened twice, unknown outcomes, dead letters, a backlog, missing workers, a store or downstream that
does not respond, and the budgets of two objectives (--fresh, --completed). Suppressed duplicates raise no alert: they are normal. The annotation runbook_url of each rule
links to its meaning and what to do.`,
		Example: `  semel alerts > /etc/prometheus/rules/semel.yml
  semel alerts --depth 10000 --age 1h`,
		RunE: func(*cobra.Command, []string) error {
			objective := func(o float64) bool { return o > 0 && o < 1 }
			switch {
			case t.Depth < 0 || t.DeadLetters < 0 || t.LeasesLost < 0 || t.Age < time.Second || t.AuditAge < time.Second:
				return output.Usage("--depth, --dead-letters and --leases-lost must not be negative, --age and --audit-age 1s or more")
			case !objective(t.Fresh) || !objective(t.Completed):
				return output.Usage("--fresh and --completed must be above 0 and below 1").WithHint("--completed 0.999")
			}
			return prom.WriteRules(a.p.Out, t)
		},
	}
	f := c.Flags()
	f.IntVar(&t.Depth, "depth", t.Depth, "messages that may wait in a queue")
	f.IntVar(&t.DeadLetters, "dead-letters", t.DeadLetters, "dead letters that may wait for a person")
	f.IntVar(&t.LeasesLost, "leases-lost", t.LeasesLost, "runs that may lose their lease in 15 minutes; one in a thousand always may")
	config.DurationVar(f, &t.Age, "age", "how long the oldest message may wait")
	config.DurationVar(f, &t.AuditAge, "audit-age", "how long ago the last audit may have been, where there was one")
	f.Float64Var(&t.Fresh, "fresh", t.Fresh, "objective: the part of first runs that begin within a minute after the message was sent")
	f.Float64Var(&t.Completed, "completed", t.Completed, "objective: the part of deliveries whose end needs no person")
	return c
}

func (a *app) dashboardsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dashboards", Short: "Print a dashboard for Grafana (JSON, to be imported)", Args: noArgs,
		Example: "  semel dashboards > semel.json",
		RunE:    func(*cobra.Command, []string) error { return prom.WriteDashboard(a.p.Out) },
	}
}

// countFlags say where an audit leaves the number of effects that happened twice.
type countFlags struct {
	textfile, emf, emfAs string
}

// emfDefault is the metric of an audit, when none is named.
const emfDefault = emf.DefaultNamespace + ",DuplicateEffects"

func (f *countFlags) bind(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.textfile, "metrics", "", "write semel_duplicate_effects_total and the time to this file, for node_exporter's textfile collector")
	p.StringVar(&f.emf, "emf", "", "append the same to this file as a CloudWatch embedded metric; - is stdout")
	p.StringVar(&f.emfAs, "emf-as", emfDefault,
		"with --emf: NAMESPACE,METRIC[,DIMENSION=VALUE…]; without dimensions they are Consumer and Queue")
}

// metric takes --emf-as apart.
func (f *countFlags) metric(consumer, queue string) (namespace, name string, dimensions [][2]string, err error) {
	parts := strings.Split(f.emfAs, ",")
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return "", "", nil, output.Usage("--emf-as %q: write NAMESPACE,METRIC[,DIMENSION=VALUE…]", f.emfAs).
			WithHint("--emf-as Custom/StepFunctions,DuplicateExecutions,StateMachine=CSV-Processing")
	}
	for _, p := range parts[2:] {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return "", "", nil, output.Usage("--emf-as: dimension %q: write NAME=VALUE", p)
		}
		dimensions = append(dimensions, [2]string{k, v})
	}
	if len(dimensions) == 0 {
		dimensions = [][2]string{{"Consumer", consumer}, {"Queue", queue}}
	}
	return parts[0], parts[1], dimensions, nil
}

func (f *countFlags) check() error {
	if f.emf == "" && f.emfAs != emfDefault {
		return output.Usage("--emf-as goes with --emf").WithHint("--emf - for stdout")
	}
	_, _, _, err := f.metric("c", "q")
	return err
}

// duplicates is how many effects of a consumer happened beyond the first of their key.
type duplicates struct {
	queue, consumer string
	n               int
}

// writeDuplicates writes semel_duplicate_effects_total to a file, which is replaced as a whole, with what more adds (nil = nothing).
func writeDuplicates(path string, more func(*prometheus.Registry) error, all ...duplicates) error {
	reg := prometheus.NewRegistry()
	for _, d := range all {
		n, err := prom.Duplicates(reg, d.queue, d.consumer)
		if there := (prometheus.AlreadyRegisteredError{}); errors.As(err, &there) { // a scenario that was named twice
			n, err = there.ExistingCollector.(prometheus.Counter), nil
		}
		if err != nil {
			return err
		}
		n.Add(float64(d.n))
	}
	if more != nil {
		if err := more(reg); err != nil {
			return err
		}
	}
	if err := prometheus.WriteToTextfile(path, reg); err != nil {
		return output.Failed("--metrics: %w", err).WithHint("a file in a folder that is there and can be written")
	}
	return nil
}

// leave writes the count to where it is asked for.
func (f *countFlags) leave(r *ops.AuditReport, consumer, queue string) (err error) {
	if f.textfile != "" {
		// A count alone says nothing about the time since.
		audited := func(reg *prometheus.Registry) error { return prom.Audited(reg, queue, consumer, time.Now()) }
		if err := writeDuplicates(f.textfile, audited, duplicates{queue, consumer, r.DuplicateEffect}); err != nil {
			return err
		}
	}
	if f.emf == "" {
		return nil
	}
	namespace, name, dimensions, err := f.metric(consumer, queue)
	if err != nil {
		return err
	}
	var out io.Writer = output.NewSafe(os.Stdout)
	if f.emf != "-" {
		file, err := output.AppendFile(f.emf)
		if err != nil {
			return fmt.Errorf("--emf: %w", err)
		}
		defer closing(&err, file)
		out = file
	}
	return emf.Count(out, namespace, name, int64(r.DuplicateEffect), dimensions...)
}

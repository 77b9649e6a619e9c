package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/deadletters"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/driver"
)

// probing are the flags of records resolve with a probe.
type probing struct {
	command, address string
	all              bool
	timeout          config.Duration

	by       string
	keep     config.Retention
	yes, dry bool
	keys     []string
}

func (p *probing) bind(c *cobra.Command) {
	p.timeout = config.Duration(30 * time.Second)
	c.Flags().StringVar(&p.command, "probe", "", "command that says whether an effect happened: exit 0 yes, 75 no, else unknown")
	c.Flags().StringVar(&p.address, "probe-http", "", "URL that is asked (GET): 200 yes, 404 no, else unknown; {key} and {effect_key} are replaced")
	c.Flags().BoolVar(&p.all, "all", false, "with a probe: every uncertain key")
	c.Flags().Var(&p.timeout, "probe-timeout", "how long the probe may take for one key")
}

func (p *probing) asked() bool { return p.command != "" || p.address != "" }

// resolved is the outcome for one key.
type resolved struct {
	Key       string `json:"key"`
	Probe     string `json:"probe"` // applied, not-applied, unknown
	As        string `json:"as,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	Why       string `json:"why,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

// resolveByProbe probes each key, and resolves those whose outcome the probe knows. It goes on after an unknown outcome, and then
// exits 3. An error of store or queue ends it.
func (a *app) resolveByProbe(cmd *cobra.Command, f *recordFlags, p *probing, as string) (err error) {
	ctx := cmd.Context()
	switch {
	case as != "" || cmd.Flags().Changed("result"):
		return output.Usage("--as and --result are a person's decision: they exclude --probe and --probe-http")
	case p.all == (len(p.keys) > 0):
		return output.Usage("which keys? name them, or --all").WithHint("%s", f.command("records", "ls", "--state", "UNCERTAIN"))
	}
	if err := config.CheckProbe(p.command, p.address); err != nil {
		return err
	}
	l, err := f.open(ctx, false)
	if err != nil {
		return err
	}
	defer closing(&err, l.set)
	records, err := p.pick(ctx, l)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		a.p.Notef("there are no uncertain keys")
	}
	if !p.dry && len(records) > 0 {
		if err := a.confirm(p.yes, fmt.Sprintf("resolve %s as the probe says", output.Count(len(records), "key"))); err != nil {
			return err
		}
	}
	prober, done, err := a.prober(p)
	if err != nil {
		return err
	}
	defer done()
	var all []resolved
	left := 0
	for _, r := range records {
		one, rerr := a.askAndResolve(ctx, l, p, prober, r)
		if err = rerr; err != nil {
			break
		}
		if one.As == "" {
			left++
		}
		all = append(all, one)
	}
	head := []string{"key", "probe", "as", "message", "why"}
	perr := output.List(a.p, all, head, func(r resolved) []any { return []any{r.Key, r.Probe, r.As, r.MessageID, r.Why} })
	switch {
	case err != nil:
		return fmt.Errorf("%d of %s done: %w", len(all), output.Count(len(records), "key"), err)
	case perr != nil:
		return perr
	case left > 0:
		return output.Negative("%d of %s left alone (see why)", left, output.Count(len(records), "key"))
	}
	return nil
}

// pick returns the chosen records.
func (p *probing) pick(ctx context.Context, l *ledger) (out []driver.Record, err error) {
	if !p.all {
		for _, key := range p.keys {
			r, err := l.find(ctx, key)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		return out, nil
	}
	all, err := l.insp.Records(ctx, driver.RecordFilter{Consumer: l.scope.consumer, State: driver.Uncertain})
	for _, r := range all {
		if l.tenant == "" || r.Key.Tenant == l.tenant {
			out = append(out, r)
		}
	}
	return out, err
}

// prober makes the probe; done releases it.
func (a *app) prober(p *probing) (pr worker.Prober, done func(), err error) {
	const keep = semel.DefaultResultMax
	if p.address != "" {
		return worker.NewHTTPProbe(worker.HTTPProbe{URL: p.address, Keep: keep, Log: a.log}, 1), func() {}, nil
	}
	argv, err := worker.GuardArgv()
	if err != nil {
		return nil, nil, err
	}
	guard, err := worker.StartGuard(argv...)
	if err != nil {
		return nil, nil, err
	}
	e := &worker.Exec{Argv: worker.Shell(p.command), Keep: keep, KillGrace: time.Second, Log: a.log, Guard: guard}
	return e, func() { _ = guard.Close() }, nil
}

func (a *app) askAndResolve(ctx context.Context, l *ledger, p *probing, pr worker.Prober, r driver.Record) (resolved, error) {
	out := resolved{Key: r.Key.Raw, Probe: "unknown", DryRun: p.dry}
	if r.State != driver.Uncertain {
		out.Why = (&deadletters.NotUncertainError{Key: r.Key.Raw, State: r.State}).Error()
		return out, nil
	}
	id := driver.DeadLetterID(driver.DeadLetterUncertain, r.Key, r.Token, "")
	box, err := l.box(ctx, r.Key.Consumer, id)
	if err != nil {
		return out, err
	}
	deadLetter, _, err := box.DeadLetters.DeadLetter(ctx, id)
	if err != nil {
		return out, err
	}
	found, result, err := p.ask(ctx, pr, l.store, deadLetter.Message, r)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	as := driver.Uncertain
	switch found {
	case semel.ProbeApplied:
		out.Probe, out.As, as = "applied", "completed", driver.Completed
	case semel.ProbeNotApplied:
		out.Probe, out.As, as = "not-applied", "retry", driver.Released
	default:
		out.Why = "the probe does not know"
		if err != nil {
			out.Why = err.Error()
		}
	}
	if p.dry || as == driver.Uncertain {
		return out, nil
	}
	kept, err := p.keep.For(as, box.Horizon)
	if err != nil {
		return out, err
	}
	out.MessageID, err = box.Resolve(ctx, r, as, result, kept, actor(p.by))
	if changed := (*deadletters.NotUncertainError)(nil); errors.As(err, &changed) {
		out.As, out.Why = "", changed.Error() // somebody else decided meanwhile
		return out, nil
	}
	return out, err
}

// ask probes one key, with the message of its dead letter and the effect key of its run.
func (p *probing) ask(ctx context.Context, pr worker.Prober, st driver.Store, m driver.Message, r driver.Record) (
	semel.ProbeResult, []byte, error,
) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.timeout))
	defer cancel()
	a := semel.NewAttempt(m, driver.Grant{
		Hold: r.Hold(), Attempt: r.Attempt, Failures: r.Failures, Unknown: true, Redelivery: true,
	}, st)
	a.Deadline = time.Now().Add(time.Duration(p.timeout))
	return pr.Probe(ctx, a)
}

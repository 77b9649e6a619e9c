package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

func resolutionNames() []string { return slices.Sorted(maps.Keys(ops.Resolutions)) }

func (a *app) recordsResolve(f *recordFlags) *cobra.Command {
	p := resolving{timeout: 30 * time.Second}
	c := &cobra.Command{
		Use:   "resolve (KEY --as STATE | (KEY… | --all) --probe CMD) --store URL",
		Short: "Decide about keys whose outcome is unknown",
		Long: `resolve decides an UNCERTAIN key, after you looked at the downstream:
  completed  the effect happened: duplicates get --result
  retry      it did not: the message of the dead letter is sent again and runs with the same effect key
  failed     the key does not run any more
It changes the record, then sends the message, then deletes the dead letter. After a crash repeat the command.

With --probe CMD or --probe-http URL, a program or endpoint decides, as for semel work. If the effect happened (exit 0 with the result
on stdout, or 200 with the result as body), the key is completed. If it did not (exit 75, or 404), the message is retried. Anything
else leaves the key alone, and the exit status is 3.`,
		Example: `  semel records resolve order-12345 --store 'sqlite:shop.db?queue=orders' \
    --as completed --result '{"charge":"ch_1"}'
  semel records resolve --all --probe ./charged.py --store 'sqlite:shop.db?queue=orders' --yes`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			given := cmd.Flags().Changed("result")
			if p.command != "" || p.address != "" {
				switch {
				case p.as != "" || given:
					return output.Usage("--as and --result are a person's decision: they exclude --probe and --probe-http")
				case p.all == (len(keys) > 0):
					return output.Usage("which keys? name them, or --all").WithHint("%s", f.command("records", "ls", "--state", "UNCERTAIN"))
				}
				if err := config.CheckProbe(p.command, p.address); err != nil {
					return err
				}
				return f.with(false, func(cmd *cobra.Command, l *ledger, keys []string) error {
					return a.resolveByProbe(cmd.Context(), l, &p, keys)
				})(cmd, keys)
			}
			if err := oneArg("key")(cmd, keys); err != nil {
				return err
			}
			if p.all {
				return output.Usage("--all goes with --probe or --probe-http")
			}
			if err := choice("as", p.as, resolutionNames()); err != nil {
				return err
			}
			if given && ops.Resolutions[p.as] != driver.Completed {
				return output.Usage("--result goes with --as completed only")
			}
			return f.with(false, func(cmd *cobra.Command, l *ledger, keys []string) error {
				return a.resolve(cmd.Context(), l, &p, keys[0])
			})(cmd, keys)
		},
	}
	destructive(c, &p.yes, &p.dry)
	byFlag(c, &p.by)
	fs := c.Flags()
	fs.StringVar(&p.command, "probe", "", "command that says whether an effect happened: exit 0 yes, 75 no, else unknown")
	fs.StringVar(&p.address, "probe-http", "", "URL that is asked (GET): 200 yes, 404 no, else unknown; {key} and {effect_key} are replaced")
	fs.BoolVar(&p.all, "all", false, "with a probe: every uncertain key")
	config.DurationVar(fs, &p.timeout, "probe-timeout", "how long the probe may take for one key")
	fs.StringVar(&p.as, "as", "", "completed, retry or failed")
	fixed(fs, "as", resolutionNames()...)
	fs.StringVar(&p.result, "result", "", "with completed: the result for duplicates")
	fs.Var(&p.keep, "retention", "how long the record is kept")
	return c
}

// resolving are the flags of records resolve.
type resolving struct {
	as, result, by   string
	command, address string // the probe
	all, yes, dry    bool
	timeout          time.Duration
	keep             config.Retention
}

func (a *app) resolve(ctx context.Context, l *ledger, p *resolving, key string) error {
	state := ops.Resolutions[p.as]
	r, err := l.find(ctx, key)
	if err != nil {
		return err
	}
	box, err := l.box(ctx, r.Key.Consumer, uncertainID(r))
	if err != nil {
		return err
	}
	kept, err := p.keep.For(state, box.Horizon)
	if err != nil {
		return err
	}
	if p.dry && r.State != driver.Uncertain && r.State != state {
		return l.notUncertain(&ops.NotUncertainError{Key: key, State: r.State})
	}
	sent := ""
	if !p.dry {
		if err := a.confirm(p.yes, fmt.Sprintf("resolve key %s as %s", key, p.as)); err != nil {
			return err
		}
		if sent, err = box.Resolve(ctx, r, state, []byte(p.result), ops.Options{Keep: kept, By: actor(p.by)}); err != nil {
			return l.notUncertain(err)
		}
	}
	again := ""
	if sent != "" {
		again = ", and sent its message again as " + sent
	}
	v := map[string]any{"key": key, "as": p.as, "message_id": sent, "dry_run": p.dry}
	return a.p.Line(v, "%s key %s as %s%s", verb(p.dry, "resolve", "resolved"), key, p.as, again)
}

// uncertainID is the id of the dead letter of an UNCERTAIN key.
func uncertainID(r driver.Record) string {
	return driver.DeadLetterID(driver.DeadLetterUncertain, r.Key, r.Token, "")
}

// notUncertain adds a hint for a key that is not UNCERTAIN.
func (f *recordFlags) notUncertain(err error) error {
	e := (*ops.NotUncertainError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	n := output.Negative("%w", err)
	switch e.State {
	case driver.FailedState:
		return n.WithHint("%s lists its dead letter; semel dlq redrive takes its id", words.Command("dlq", "ls", "--queue", open.Redact(cmp.Or(f.queue, f.store))))
	case driver.InProgress:
		return n.WithHint("wait for its lease to end, or %s", f.command("records", "release", e.Key))
	default:
		return n
	}
}

// resolved is the outcome for one key.
type resolved struct {
	Key       string `json:"key"`
	Outcome   string `json:"outcome"` // applied, not-applied, unknown
	As        string `json:"as,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	Why       string `json:"why,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

// resolveByProbe probes each key, and resolves those whose outcome the probe knows. It goes on after an unknown outcome, and then
// exits 3. An error of store or queue ends it.
func (a *app) resolveByProbe(ctx context.Context, l *ledger, p *resolving, keys []string) error {
	records, err := p.pick(ctx, l, keys)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		a.p.Notef("there are no uncertain keys")
	}
	if !p.dry && len(records) > 0 {
		if err := a.confirm(p.yes, fmt.Sprintf("resolve %s as the probe says", words.Count(len(records), "key"))); err != nil {
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
	head := []string{"key", "outcome", "as", "message", "why"}
	perr := output.List(a.p, all, head, func(r resolved) []any { return []any{r.Key, r.Outcome, r.As, r.MessageID, r.Why} })
	switch {
	case err != nil:
		return fmt.Errorf("%d of %s done: %w", len(all), words.Count(len(records), "key"), err)
	case perr != nil:
		return perr
	case left > 0:
		return output.Negative("%d of %s left alone (see why)", left, words.Count(len(records), "key"))
	}
	return nil
}

// pick returns the chosen records.
func (p *resolving) pick(ctx context.Context, l *ledger, keys []string) (out []driver.Record, err error) {
	if !p.all {
		for _, key := range keys {
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
func (a *app) prober(p *resolving) (pr worker.Prober, done func(), err error) {
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

func (a *app) askAndResolve(ctx context.Context, l *ledger, p *resolving, pr worker.Prober, r driver.Record) (resolved, error) {
	out := resolved{Key: r.Key.Raw, Outcome: "unknown", DryRun: p.dry}
	if r.State != driver.Uncertain {
		out.Why = (&ops.NotUncertainError{Key: r.Key.Raw, State: r.State}).Error()
		return out, nil
	}
	box, err := l.box(ctx, r.Key.Consumer, uncertainID(r))
	if err != nil {
		return out, err
	}
	deadLetter, _, err := box.DeadLetters.DeadLetter(ctx, uncertainID(r))
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
		out.Outcome, out.As, as = "applied", "completed", driver.Completed
	case semel.ProbeNotApplied:
		out.Outcome, out.As, as = "not-applied", "retry", driver.Released
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
	out.MessageID, err = box.Resolve(ctx, r, as, result, ops.Options{Keep: kept, By: actor(p.by)})
	if changed := (*ops.NotUncertainError)(nil); errors.As(err, &changed) {
		out.As, out.Why = "", changed.Error() // somebody else decided meanwhile
		return out, nil
	}
	return out, err
}

// ask probes one key, with the message of its dead letter and the effect key of its run.
func (p *resolving) ask(ctx context.Context, pr worker.Prober, st driver.Store, m driver.Message, r driver.Record) (
	semel.ProbeResult, []byte, error,
) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	a := semel.NewAttempt(m, driver.Grant{
		Hold: r.Hold(), Attempt: r.Attempt, Failures: r.Failures, Unknown: true, Redelivery: true,
	}, st)
	a.Deadline = time.Now().Add(p.timeout)
	return pr.Probe(ctx, a)
}

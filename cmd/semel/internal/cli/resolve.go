package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/deadletters"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var resolutions = map[string]driver.State{
	"completed": driver.Completed, "retry": driver.Released, "failed": driver.FailedState,
}

func resolutionNames() []string { return slices.Sorted(maps.Keys(resolutions)) }

func (a *app) recordsResolve(f *recordFlags) *cobra.Command {
	var as, result, by string
	var yes, dry bool
	var p probing
	var keep config.Retention
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
		RunE: func(cmd *cobra.Command, args []string) error {
			p.by, p.keep, p.yes, p.dry, p.keys = by, keep, yes, dry, args
			if p.asked() {
				return a.resolveByProbe(cmd, f, &p, as)
			}
			if err := oneArg("key")(cmd, args); err != nil {
				return err
			}
			if p.all {
				return output.Usage("--all goes with --probe or --probe-http")
			}
			if err := choice("as", as, resolutionNames()); err != nil {
				return err
			}
			state := resolutions[as]
			if cmd.Flags().Changed("result") && state != driver.Completed {
				return output.Usage("--result goes with --as completed only")
			}
			return a.resolve(cmd, f, &p, as, state, []byte(result))
		},
	}
	destructive(c, &yes, &dry)
	byFlag(c, &by)
	p.bind(c)
	c.Flags().StringVar(&as, "as", "", "completed, retry or failed")
	fixed(c.Flags(), "as", resolutionNames()...)
	c.Flags().StringVar(&result, "result", "", "with completed: the result for duplicates")
	c.Flags().Var(&keep, "retention", "how long the record is kept")
	return c
}

func (a *app) resolve(cmd *cobra.Command, f *recordFlags, p *probing, as string, state driver.State, result []byte) (err error) {
	ctx, key, dry := cmd.Context(), p.keys[0], p.dry
	l, err := f.open(ctx, false)
	if err != nil {
		return err
	}
	defer closing(&err, l.set)
	r, err := l.find(ctx, key)
	if err != nil {
		return err
	}
	box, err := l.box(ctx, r.Key.Consumer, driver.DeadLetterID(driver.DeadLetterUncertain, r.Key, r.Token, ""))
	if err != nil {
		return err
	}
	sent := ""
	kept, err := p.keep.For(state, box.Horizon)
	if err != nil {
		return err
	}
	if dry && r.State != driver.Uncertain && r.State != state {
		return f.notUncertain(&deadletters.NotUncertainError{Key: key, State: r.State})
	}
	if !dry {
		if err := a.confirm(p.yes, fmt.Sprintf("resolve key %s as %s", key, as)); err != nil {
			return err
		}
		if sent, err = box.Resolve(ctx, r, state, result, kept, actor(p.by)); err != nil {
			return f.notUncertain(err)
		}
	}
	v := map[string]any{"key": key, "as": as, "message_id": sent, "dry_run": dry}
	return a.p.Object(v, func(w io.Writer) error {
		text := fmt.Sprintf("%s key %s as %s", verb(dry, "resolve", "resolved"), key, as)
		if sent != "" {
			text += ", and sent its message again as " + sent
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// notUncertain adds a hint for a key that is not UNCERTAIN.
func (f *recordFlags) notUncertain(err error) error {
	e := (*deadletters.NotUncertainError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	n := output.Negative("%w", err)
	switch e.State {
	case driver.FailedState:
		return n.WithHint("%s lists its dead letter; semel dlq redrive takes its id", output.Command("dlq", "ls", "--queue", open.Redact(cmp.Or(f.queue, f.store))))
	case driver.InProgress:
		return n.WithHint("wait for its lease to end, or %s", f.command("records", "release", e.Key))
	default:
		return n
	}
}

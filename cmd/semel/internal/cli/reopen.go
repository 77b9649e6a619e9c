package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

func (a *app) recordsReopen(f *recordFlags) *cobra.Command {
	var yes, dry bool
	var by, reason string
	var keep config.Retention
	c := &cobra.Command{
		Use: "reopen KEY --reason WHY --store URL", Short: "Run an ended key again at its next delivery", Args: oneArg("key"),
		Long: `reopen lets a key that is COMPLETED, FAILED, UNCERTAIN or EXPIRED run again at its next delivery. It sends no message: the
producer sends it again, or you do with semel send. The effect can then happen twice, on purpose:
  COMPLETED  the next run has new effect keys, because downstreams refuse those of the completed run
  FAILED     the effect keys stay: if the effect happened after all, the downstream refuses the second
  UNCERTAIN  as FAILED; a probe runs first if there is one; with --takeover once the key runs anyway
  EXPIRED    as the state that it ended in
The dead letter of a FAILED or UNCERTAIN key stays. If it has the message, prefer semel dlq redrive or semel records resolve,
which send it again.

reopen refuses a key that is IN_PROGRESS: wait, or see semel records release. Workers with a cache may acknowledge deliveries of a
completed key as duplicates until their --cache-max-age has passed (1 min). The audit log stores the reason.`,
		Example: "  semel records reopen order-12345 --reason 'invoice lost' --store 'sqlite:shop.db?queue=orders'",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, key := cmd.Context(), args[0]
			if reason == "" {
				return output.Usage("--reason is missing: why may the effect happen again?").
					WithHint("--reason 'the invoice was lost', for the audit log")
			}
			l, err := f.open(ctx, false)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			r, op, err := l.operable(ctx, key)
			if err != nil {
				return err
			}
			if err := reopens(r, key); err != nil {
				return err
			}
			if !dry {
				q := fmt.Sprintf("let key %s, which is %s, run again at its next delivery (its effect may happen twice)", key, r.State)
				if err := a.confirm(yes, q); err != nil {
					return err
				}
				after, out, err := op.Operate(ctx, driver.Operation{
					Kind: driver.Reopen, Key: r.Key, Token: r.Token, Generation: r.Generation, Keep: keep.Of(driver.Released),
					Reason: reason, By: actor(by),
				})
				if err != nil {
					return fmt.Errorf("reopen key %q: %w", key, err)
				}
				if out != driver.Applied {
					return output.Negative("key %q is %s by now", key, after.State).WithHint("semel records explain %s", key)
				}
				r = after
			}
			v := recordOf(r)
			return a.p.Object(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s key %s: it runs at its next delivery\n", verb(dry, "reopen", "reopened"), key)
				return err
			})
		},
	}
	destructive(c, &yes, &dry)
	byFlag(c, &by)
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit log (required)")
	c.Flags().Var(&keep, "retention", "how long the record is kept")
	return c
}

// reopens refuses a record that has not ended.
func reopens(r driver.Record, key string) error {
	switch r.State {
	case driver.InProgress:
		if time.Now().After(r.LeaseUntil) {
			return output.Negative("key %q is IN_PROGRESS, and its lease has ended: its next delivery takes over", key).
				WithHint("send its message again if it is not in the queue any more")
		}
		return output.Negative("key %q is IN_PROGRESS: a worker has it until %s", key, rfc3339(r.LeaseUntil)).
			WithHint("wait, or semel records release %s if the worker is surely dead", key)
	case driver.Released:
		return output.Negative("key %q is RELEASED: its next delivery runs it anyway, from %s", key, rfc3339(r.RetryAt))
	case driver.Absent, driver.Completed, driver.FailedState, driver.Uncertain, driver.Expired:
	}
	return nil
}

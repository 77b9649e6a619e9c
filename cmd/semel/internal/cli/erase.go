package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// erased is the printed form of an erased record.
type erased struct {
	Key      string `json:"key"`
	Consumer string `json:"consumer"`
	Tenant   string `json:"tenant,omitempty"`
	Was      string `json:"was"`
	DryRun   bool   `json:"dry_run,omitempty"`
}

func (a *app) recordsErase(f *recordFlags) *cobra.Command {
	var yes, dry bool
	var by, reason string
	c := &cobra.Command{
		Use: "erase KEY --reason WHY --store URL", Args: oneArg("key"),
		Short: "Remove the record of an ended key, including the key's text",
		Long: `erase removes the record of a key that is COMPLETED, FAILED, UNCERTAIN or EXPIRED, with its steps, its duplicates and its
entries in the audit log, for example because a customer asked for it. It cannot be undone.

Afterwards the key is unknown. A later message of it is a new one: it runs, and its effect happens again, even if it is a copy.
Erase a key only when no copy of its message can come any more. To let it run again, use semel records reopen.

One entry in the audit log stays: when, by whom and why a record of which consumer and tenant was erased. It does not name the key,
so do not write the key into --reason. Messages in queues, dead letters (semel dlq ls) and your own tables stay.

erase refuses a key that is IN_PROGRESS or RELEASED: its message is not done yet. It does not work on DynamoDB and Redis, whose
records go at the end of the retention.`,
		Example: "  semel records erase order-12345 --reason 'request 4711' --store 'sqlite:shop.db?queue=orders'",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, key := cmd.Context(), args[0]
			if reason == "" {
				return output.Usage("--reason is missing: why is the record erased?").
					WithHint("--reason 'request 4711', for the audit log; it must not name the key")
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
			if !r.State.Terminal() {
				return output.Negative("key %q is %s: only ended keys are erased", key, r.State).
					WithHint("wait until its message is done: %s", f.command("records", "explain", key))
			}
			if !dry {
				q := fmt.Sprintf("erase the record of key %s, which is %s (a later copy of its message runs)", key, r.State)
				if err := a.confirm(yes, q); err != nil {
					return err
				}
				after, out, err := op.Operate(ctx, driver.Operation{
					Kind: driver.Erase, Key: r.Key, Token: r.Token, Generation: r.Generation, Reason: reason, By: actor(by),
				})
				if err != nil {
					return fmt.Errorf("erase key %q: %w", key, err)
				}
				if out != driver.Applied {
					return output.Negative("key %q is %s by now", key, after.State)
				}
			}
			v := erased{Key: key, Consumer: r.Key.Consumer, Tenant: r.Key.Tenant, Was: r.State.String(), DryRun: dry}
			return a.p.Object(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s the record of key %s, which was %s\n", verb(dry, "erase", "erased"), key, r.State)
				return err
			})
		},
	}
	destructive(c, &yes, &dry)
	byFlag(c, &by)
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit log, without the key (required)")
	return c
}

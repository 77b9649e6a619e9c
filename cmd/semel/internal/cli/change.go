package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

// change are the flags of the commands that change one record: release, reopen, erase.
type change struct {
	yes, dry   bool
	by, reason string
	keep       config.Retention
}

// apply asks for confirmation, carries out an operation on a record, and returns the record afterwards.
func (c *change) apply(cmd *cobra.Command, a *app, l *ledger, r driver.Record, question string, kind driver.OperationKind) (driver.Record, error) {
	if !c.dry {
		if err := a.confirm(c.yes, question); err != nil {
			return r, err
		}
	}
	after, err := ops.Change(cmd.Context(), l.store, r, kind, ops.Options{
		Keep: c.keep.Of(driver.Released), DryRun: c.dry, By: actor(c.by), Reason: c.reason,
	})
	switch e := (*ops.ChangedError)(nil); {
	case errors.As(err, &e):
		return r, output.Negative("%w", err).WithHint("%s", l.command("records", "explain", r.Key.Raw))
	case errors.Is(err, driver.ErrUnsupported):
		return r, output.Usage("%w", err)
	}
	return after, err
}

// bind adds the flags. reason is the help of --reason, "" if there is none.
func (c *change) bind(cmd *cobra.Command, reason string) *cobra.Command {
	destructive(cmd, &c.yes, &c.dry)
	byFlag(cmd, &c.by)
	if reason != "" {
		cmd.Flags().StringVar(&c.reason, "reason", "", reason)
	}
	return cmd
}

func (a *app) recordsRelease(f *recordFlags) *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use: "release KEY --store URL", Short: "End the claim of a worker, so that the next delivery runs", Args: oneArg("key"),
		Long: `release ends the claim of a key that is IN_PROGRESS. Its worker is fenced: the store refuses its later writes. Its effect may
have happened, and the record keeps this doubt. A claim ends by itself when its lease does; release only saves the wait.`,
		RunE: f.with(false, func(cmd *cobra.Command, l *ledger, args []string) error {
			r, err := l.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if r.State != driver.InProgress {
				return output.Negative("key %q is %s: only claims (IN_PROGRESS) are released", args[0], r.State).
					WithHint("%s", f.command("records", "explain", args[0]))
			}
			q := fmt.Sprintf("release key %s from its worker (its lease lasts until %s)", args[0], rfc3339(r.LeaseUntil))
			if r, err = c.apply(cmd, a, l, r, q, driver.ForceRelease); err != nil {
				return err
			}
			return a.p.Line(recordOf(r), "%s key %s", verb(c.dry, "release", "released"), args[0])
		}),
	}
	cmd.Flags().Var(&c.keep, "retention", "how long the record is kept")
	return c.bind(cmd, "")
}

func (a *app) recordsReopen(f *recordFlags) *cobra.Command {
	var c change
	cmd := &cobra.Command{
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
		PreRunE: func(*cobra.Command, []string) error {
			if c.reason == "" {
				return output.Usage("--reason is missing: why may the effect happen again?").
					WithHint("--reason 'the invoice was lost', for the audit log")
			}
			return nil
		},
		RunE: f.with(false, func(cmd *cobra.Command, l *ledger, args []string) error {
			r, err := l.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := reopens(r, args[0]); err != nil {
				return err
			}
			q := fmt.Sprintf("let key %s, which is %s, run again at its next delivery (its effect may happen twice)", args[0], r.State)
			if r, err = c.apply(cmd, a, l, r, q, driver.Reopen); err != nil {
				return err
			}
			return a.p.Line(recordOf(r),
				"%s key %s: it runs at its next delivery", verb(c.dry, "reopen", "reopened"), args[0])
		}),
	}
	cmd.Flags().Var(&c.keep, "retention", "how long the record is kept")
	return c.bind(cmd, "why, for the audit log (required)")
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

// erased is the printed form of an erased record.
type erased struct {
	Key      string `json:"key"`
	Consumer string `json:"consumer"`
	Tenant   string `json:"tenant,omitempty"`
	Was      string `json:"was"`
	DryRun   bool   `json:"dry_run,omitempty"`
}

func (a *app) recordsErase(f *recordFlags) *cobra.Command {
	var c change
	cmd := &cobra.Command{
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
		PreRunE: func(*cobra.Command, []string) error {
			if c.reason == "" {
				return output.Usage("--reason is missing: why is the record erased?").
					WithHint("--reason 'request 4711', for the audit log; it must not name the key")
			}
			return nil
		},
		RunE: f.with(false, func(cmd *cobra.Command, l *ledger, args []string) error {
			r, err := l.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !r.State.Terminal() {
				return output.Negative("key %q is %s: only ended keys are erased", args[0], r.State).
					WithHint("wait until its message is done: %s", f.command("records", "explain", args[0]))
			}
			q := fmt.Sprintf("erase the record of key %s, which is %s (a later copy of its message runs)", args[0], r.State)
			if _, err = c.apply(cmd, a, l, r, q, driver.Erase); err != nil {
				return err
			}
			v := erased{Key: args[0], Consumer: r.Key.Consumer, Tenant: r.Key.Tenant, Was: r.State.String(), DryRun: c.dry}
			return a.p.Line(v,
				"%s the record of key %s, which was %s", verb(c.dry, "erase", "erased"), args[0], r.State)
		}),
	}
	return c.bind(cmd, "why, for the audit log, without the key (required)")
}

package cli

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/ops"
)

func (a *app) dlqEdit(f *dlqFlags) *cobra.Command {
	var body string
	var headers []string
	var dry bool
	w := config.Default()
	c := &cobra.Command{
		Use: "edit ID (--body FILE|- | --header NAME=VALUE…) --queue URL", Short: "Fix the message of a dead letter, before its redrive",
		Long: `edit changes body or headers of a dead letter's message. The key must stay the same: with another key it would be another
message. The edited dead letter replaces the old one and has a new id. Its redrive gives the record the fingerprint of the new
payload and the next generation, so that it does not count as a mismatch. --key, --fingerprint and --strategy must be those of the worker.`,
		Example: `  semel dlq show 4f2a… --queue 'sqlite:shop.db?queue=orders' --body | jq '.amount = 4200' > new.json
  semel dlq edit 4f2a… --body new.json --key json:/order_id --queue 'sqlite:shop.db?queue=orders'`,
		Args: oneArg("dead letter id"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			e, err := a.editOf(w, body, headers)
			if err != nil {
				return err
			}
			set, box, err := f.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer closing(&err, set)
			l, err := box.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			e.DryRun = dry
			after, err := box.Edit(cmd.Context(), l, e)
			if no := (*ops.RefusedError)(nil); errors.As(err, &no) {
				return output.Negative("dead letter %s: %w", args[0], err).WithHint("%s", no.Hint)
			}
			if err != nil {
				return err
			}
			v := deadLetterOf(after)
			return a.p.Line(v, "%s dead letter %s: it is %s now", verb(dry, "edit", "edited"), args[0], after.ID)
		},
	}
	c.Flags().StringVar(&body, "body", "", "file with the new body, - for stdin")
	c.Flags().StringArrayVar(&headers, "header", nil, "NAME=VALUE to set, NAME= to take away (may be repeated)")
	c.Flags().StringVar(&w.Key, "key", w.Key, "as the worker has it")
	c.Flags().StringVar(&w.Fingerprint, "fingerprint", w.Fingerprint, "as the worker has it")
	c.Flags().StringVar(&w.Strategy, "strategy", w.Strategy, "as the worker has it")
	c.Flags().BoolVar(&dry, "dry-run", false, "only print what would be done")
	return c
}

// editOf reads what to change.
func (a *app) editOf(w config.Work, body string, headers []string) (e ops.Edit, err error) {
	if body == "" && len(headers) == 0 {
		return e, output.Usage("nothing to change: give --body or --header").WithHint("--body fixed.json")
	}
	if e.Key, err = key.Parse(w.Key); err != nil {
		return e, config.Explain(err)
	}
	if e.Fingerprint, err = w.FingerprintFunc(); err != nil {
		return e, config.Explain(err)
	}
	v, err := w.Versions()
	if err != nil {
		return e, config.Explain(err)
	}
	if v != nil {
		e.Version = v.Of
	}
	if e.Headers, err = pairs("header", headers); err != nil {
		return e, err
	}
	switch body {
	case "":
	case "-":
		e.Body, err = io.ReadAll(a.in)
	default:
		e.Body, err = os.ReadFile(body)
	}
	if err != nil {
		return e, output.Usage("--body: %w", err)
	}
	return e, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// deadLetter is the printed form of a dead letter (contract section 7).
type deadLetter struct {
	ID              string            `json:"id"`
	Kind            string            `json:"kind"`
	Key             string            `json:"key"`
	Consumer        string            `json:"consumer"`
	Queue           string            `json:"queue"`
	Attempts        int               `json:"attempts"`
	Reason          string            `json:"reason"`
	Generation      uint32            `json:"generation"`
	Token           uint64            `json:"token"`
	Version         string            `json:"version,omitempty"`
	MessageID       string            `json:"message_id"`
	Group           string            `json:"group,omitempty"`
	FirstReceivedAt string            `json:"first_received_at,omitempty"`
	DeadAt          string            `json:"dead_at,omitempty"`
	BodyBytes       int               `json:"body_bytes"`
	Headers         map[string]string `json:"headers,omitempty"`
	Body            *string           `json:"body,omitempty"`
	BodyBase64      string            `json:"body_base64,omitempty"`
}

func deadLetterOf(l driver.DeadLetter) deadLetter {
	return deadLetter{
		ID: l.ID, Kind: string(l.Kind), Key: l.Key.Raw, Consumer: l.Key.Consumer, Queue: l.Message.Queue, Attempts: l.Attempts,
		Reason: ops.Reason(l.Reason), Generation: l.Generation, Token: l.Token, Version: l.Version.String(), MessageID: l.Message.ID, Group: l.Message.Group,
		FirstReceivedAt: rfc3339(l.FirstReceived), DeadAt: rfc3339(l.DeadAt), BodyBytes: len(l.Message.Body),
	}
}

// dlqFlags are shared by the commands on dead letters.
type dlqFlags struct {
	queue, store, by string
	scopeFlags
}

func (a *app) dlqCommand() *cobra.Command {
	f := &dlqFlags{}
	c := group("dlq", "Dead letters: ls, show, edit, redrive, discard, export, import",
		`Dead letters are messages that need a person: failed (the handler gave up, or attempts ran out), mismatch (one key with two
payloads), uncertain (the outcome is unknown; see semel records resolve), busy (the key was in progress, and the worker's --busy
is fail) and late (an older version, or a duplicate after the retention).

A command acts on the dead letters of the queue that --queue names, whatever their consumer; several queues of SQS may share a
dead-letter queue. With --consumer it acts on those of this consumer only, with --all-consumers on all of the
dead-letter queue. It does not find a dead letter outside of the scope.`,
		a.dlqLs(f), a.dlqShow(f), a.dlqEdit(f), a.dlqRedrive(f), a.dlqDiscard(f), a.dlqExport(f), a.dlqImport(f))
	c.PersistentFlags().StringVar(&f.queue, "queue", "", "URL of the queue")
	c.PersistentFlags().StringVar(&f.store, "store", "", "URL of the record store (default: the queue's)")
	f.bind(c.PersistentFlags())
	return c
}

func (a *app) dlqLs(f *dlqFlags) *cobra.Command {
	var limit int
	var kind string
	c := &cobra.Command{
		Use: "ls --queue URL", Short: "List dead letters, oldest first", Args: noArgs,
		Example: "  semel dlq ls --queue 'sqlite:shop.db?queue=orders' -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if limit < 0 {
				return output.Usage("--limit must not be negative")
			}
			if err := checkKind(kind); err != nil {
				return err
			}
			set, box, err := f.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer closing(&err, set)
			ls, err := box.list(cmd.Context(), kind)
			if err != nil {
				return err
			}
			a.noteLeft(box)
			var all []deadLetter
			for _, l := range ls {
				if limit > 0 && len(all) == limit {
					break
				}
				all = append(all, deadLetterOf(l))
			}
			head := []string{"id", "kind", "key", "attempts", "dead at", "bytes", "reason"}
			return output.List(a.p, all, head, func(l deadLetter) []any {
				reason, _, _ := strings.Cut(l.Reason, "\n") // the causes behind it are in dlq show
				return []any{l.ID, l.Kind, l.Key, l.Attempts, l.DeadAt, l.BodyBytes, reason}
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "at most N (0: all)")
	kindFlag(c, &kind, "")
	return c
}

// deadLetterKinds are the kinds of dead letters.
var deadLetterKinds = []string{
	string(driver.DeadLetterFailed), string(driver.DeadLetterMismatch), string(driver.DeadLetterUncertain), string(driver.DeadLetterBusy),
	string(driver.DeadLetterLate),
}

// checkKind refuses an unknown kind; "" is any.
func checkKind(kind string) error {
	if kind == "" {
		return nil
	}
	return choice("kind", kind, deadLetterKinds)
}

// kindFlag adds --kind, whose help begins with when.
func kindFlag(c *cobra.Command, kind *string, when string) {
	c.Flags().StringVar(kind, "kind", "", when+"only failed, mismatch, uncertain, busy or late")
	fixed(c.Flags(), "kind", deadLetterKinds...)
}

var redriveModes = []string{string(ops.Skip), string(ops.Verify), string(ops.Rerun)}

func (a *app) dlqShow(f *dlqFlags) *cobra.Command {
	var body bool
	c := &cobra.Command{
		Use: "show ID --queue URL", Short: "Show one dead letter with its message", Args: oneArg("dead letter id"),
		Example: "  semel dlq show 4f2a… --queue 'sqlite:shop.db?queue=orders' --body > body.json",
		RunE: f.with(true, func(cmd *cobra.Command, box *deadLetters, args []string) error {
			l, err := box.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if body {
				return a.p.Raw(l.Message.Body)
			}
			v := deadLetterOf(l)
			v.Headers = l.Message.Headers
			v.Body, v.BodyBase64 = textOr64(l.Message.Body)
			return a.p.Object(v, func(b *strings.Builder) { textDeadLetter(b, v) })
		}),
	}
	c.Flags().BoolVar(&body, "body", false, "print the body alone, byte for byte")
	return c
}

func textDeadLetter(b *strings.Builder, l deadLetter) {
	body := l.BodyBase64
	if l.Body != nil {
		body = *l.Body
	}
	lines := [][2]string{
		{"id", l.ID}, {"kind", l.Kind}, {"key", l.Key}, {"consumer", l.Consumer}, {"queue", l.Queue},
		{"attempts", fmt.Sprint(l.Attempts)}, {"reason", l.Reason}, {"message", l.MessageID}, {"first seen", l.FirstReceivedAt},
		{"dead at", l.DeadAt},
	}
	for k, v := range l.Headers {
		lines = append(lines, [2]string{"header", k + ": " + v})
	}
	textFields(b, 4000, append(lines, [2]string{"body", body}))
}

// textFields prints a line for each field that is not empty.
func textFields(b *strings.Builder, width int, fields [][2]string) {
	for _, f := range fields {
		if f[1] != "" {
			fmt.Fprintf(b, "%-12s %s\n", f[0], words.Printable(f[1], width))
		}
	}
}

// batchFlags are those of verbs that act on many dead letters.
type batchFlags struct {
	all, yes, dry bool
	kind          string
	most          int
	rate          float64
	canary        int
	canaryTimeout time.Duration
}

func (b *batchFlags) batch() ops.Batch {
	o := ops.Batch{Rate: b.rate, Canary: b.canary, CanaryTimeout: b.canaryTimeout}
	if b.dry {
		o.Canary = 0
	}
	return o
}

func (b *batchFlags) bind(c *cobra.Command) {
	destructive(c, &b.yes, &b.dry)
	c.Flags().BoolVar(&b.all, "all", false, "every dead letter")
	kindFlag(c, &b.kind, "with --all: ")
	c.Flags().IntVar(&b.most, "max", 0, "at most N (0: all)")
	c.Flags().Float64Var(&b.rate, "rate", 0, "dead letters per second (0: as fast as possible)")
}

// pick returns the dead letters that are meant.
func (b *batchFlags) pick(ctx context.Context, box *deadLetters, ids []string) ([]driver.DeadLetter, error) {
	switch {
	case b.all == (len(ids) > 0):
		return nil, output.Usage("which dead letters? give ids, or --all").
			WithHint("%s", box.CLI.DeadLetters("ls"))
	case b.most < 0 || b.rate < 0 || b.canary < 0:
		return nil, output.Usage("--max, --rate and --canary must not be negative")
	case b.kind != "" && !b.all:
		return nil, output.Usage("--kind goes with --all")
	}
	if err := checkKind(b.kind); err != nil {
		return nil, err
	}
	var out []driver.DeadLetter
	if b.all {
		all, err := box.list(ctx, b.kind)
		if err != nil {
			return nil, err
		}
		out = all
	}
	for _, id := range ids {
		l, err := box.one(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	if b.most > 0 && len(out) > b.most {
		out = out[:b.most]
	}
	return out, nil
}

func (a *app) dlqRedrive(f *dlqFlags) *cobra.Command {
	var b batchFlags
	var mode string
	var newGeneration bool
	var keep config.Retention
	c := &cobra.Command{
		Use: "redrive (ID… | --all) --queue URL", Short: "Send dead letters again, under their old keys",
		Long: `redrive reopens the record of each dead letter's key, sends its message again under a new message id and the same key, and
deletes the dead letter, in this order. After a crash repeat the command. It drops the dead letters of completed keys.
  --mode skip    (default) a key whose effect may have happened runs with the same effect key, after the probe if there is one
  --mode verify  as skip, but such a key is left alone unless its policy is probe
  --mode rerun   you vouch that the effect did not happen: no probe runs
It leaves two kinds alone: mismatch, which belongs to a key with another payload, and uncertain, which needs a decision. It sends
the message of a busy one again unchanged, unless the key is completed.

With --canary N it redrives N dead letters and waits until a worker has completed their keys. If one fails again, or none takes them in
time, the command ends with exit status 1 and leaves the others alone.`,
		Example: `  semel dlq redrive --all --kind failed --rate 10 --queue 'sqlite:shop.db?queue=orders'
  semel dlq redrive --all --canary 3 --rate 20 --queue 'sqlite:shop.db?queue=orders'
  semel dlq redrive 4f2a… --dry-run --queue 'sqlite:shop.db?queue=orders'`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			m := ops.Mode(mode)
			if err := choice("mode", mode, redriveModes); err != nil {
				return err
			}
			if newGeneration && m != ops.Rerun {
				return output.Usage("--new-generation runs completed keys again: it needs --mode rerun")
			}
			o := ops.Options{Mode: m, NewGeneration: newGeneration, DryRun: b.dry, By: actor(f.by)}
			return a.onDeadLetters(cmd.Context(), f, b, ids, "redrive", func(ctx context.Context, box ops.Queue, l driver.DeadLetter) (
				_ ops.Result, err error,
			) {
				if o.Keep, err = keep.For(driver.Released, box.Horizon); err != nil {
					return ops.Result{}, err
				}
				return box.Redrive(ctx, l, o)
			})
		},
	}
	b.bind(c)
	byFlag(c, &f.by)
	b.canaryTimeout = 2 * time.Minute
	c.Flags().IntVar(&b.canary, "canary", 0, "redrive N first, and the others only when these keys are completed (0: all at once)")
	config.DurationVar(c.Flags(), &b.canaryTimeout, "canary-timeout", "how long the keys of the canary may take")
	c.Flags().StringVar(&mode, "mode", "skip", "skip, verify or rerun")
	fixed(c.Flags(), "mode", redriveModes...)
	c.Flags().BoolVar(&newGeneration, "new-generation", false, "with rerun: run completed keys again, under a new effect key")
	c.Flags().Var(&keep, "retention", "how long the record is kept")
	return c
}

func (a *app) dlqDiscard(f *dlqFlags) *cobra.Command {
	var b batchFlags
	c := &cobra.Command{
		Use: "discard (ID… | --all) --queue URL", Short: "Delete dead letters for good; later duplicates are just acknowledged",
		Example: "  semel dlq discard --all --kind mismatch --dry-run --queue 'sqlite:shop.db?queue=orders'",
		RunE: func(cmd *cobra.Command, ids []string) error {
			o := ops.Options{DryRun: b.dry, By: actor(f.by)}
			return a.onDeadLetters(cmd.Context(), f, b, ids, "discard", func(ctx context.Context, box ops.Queue, l driver.DeadLetter) (ops.Result, error) {
				return box.Discard(ctx, l, o)
			})
		},
	}
	b.bind(c)
	byFlag(c, &f.by)
	return c
}

// onDeadLetters does something to many dead letters, at a rate, and prints what became of each. It goes on after a refusal, and
// exits 3 when there was any; an error ends it.
func (a *app) onDeadLetters(
	ctx context.Context, f *dlqFlags, b batchFlags, ids []string, what string,
	op func(context.Context, ops.Queue, driver.DeadLetter) (ops.Result, error),
) (err error) {
	set, box, err := f.open(ctx, false)
	if err != nil {
		return err
	}
	defer closing(&err, set)
	ls, err := b.pick(ctx, box, ids)
	if err != nil {
		return err
	}
	a.noteLeft(box)
	if len(ls) == 0 {
		a.p.Notef("queue %s has no such dead letters", box.Name)
	}
	if !b.dry && len(ls) > 0 {
		if err := a.confirm(b.yes, fmt.Sprintf("%s %s of queue %s", what, words.Count(len(ls), "dead letter"), box.Name)); err != nil {
			return err
		}
	}
	if o := b.batch(); o.Canary > 0 && o.Canary < len(ls) {
		a.p.Notef("canary: redriving %d of %s, then waiting up to %s until a worker has completed their keys; only then the others follow. "+
			"To leave the others alone, interrupt; to continue later, repeat the command", o.Canary, words.Count(len(ls), "dead letter"), words.Duration(b.canaryTimeout))
	}
	var results []ops.Result
	refused := 0
	err = box.Each(ctx, ls, b.batch(), func(ctx context.Context, l driver.DeadLetter) (ops.Result, error) { return op(ctx, box.Queue, l) },
		func(r ops.Result) {
			if r.Outcome == ops.Refused {
				refused++
			}
			results = append(results, r)
		})
	head := []string{"id", "key", "outcome", "message", "why"}
	perr := output.List(a.p, results, head, func(r ops.Result) []any {
		return []any{r.ID, r.Key, verb(b.dry && r.Outcome != ops.Refused, "be ", "") + string(r.Outcome), r.MessageID, r.Why}
	})
	done := fmt.Sprintf("%s: %d of %s done", what, len(results), words.Count(len(ls), "dead letter"))
	switch canary := (*ops.CanaryError)(nil); {
	case errors.As(err, &canary):
		return output.Failed("%s: %w; the others are unchanged", done, err).
			WithHint("start a worker, or fix what makes the key fail (%s); then repeat the command", box.CLI.DeadLetters("ls"))
	case err != nil:
		return fmt.Errorf("%s: %w", done, err)
	case perr != nil:
		return perr
	case refused > 0:
		return output.Negative("%d of %s left alone (see why)", refused, words.Count(len(ls), "dead letter"))
	}
	return nil
}

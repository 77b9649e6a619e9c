package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

func (a *app) recordsExplain(f *recordFlags) *cobra.Command {
	var events []string
	c := &cobra.Command{
		Use: "explain KEY --store URL", Short: "Explain what happened to one key", Args: oneArg("key"),
		Long: `explain lists what happened to a key: who ran it when, why there were duplicates, and from when on it is unknown whether the
effect happened. It reads the record, the journal of its steps, the audit log, the stored duplicates, and the events files of
workers (work --events). It ends with commands to paste, if something is to do.

The store keeps the newest 16 duplicates of each key and counts the others. Workers write them in the background, so some can be
missing after a crash or under load. DynamoDB keeps none: only events files have them.`,
		Example: `  semel records explain order-12345 --store 'sqlite:shop.db?queue=orders' \
    --events worker1.jsonl --events worker2.jsonl`,
		RunE: f.with(true, func(cmd *cobra.Command, l *ledger, args []string) error {
			r, missing := l.find(cmd.Context(), args[0])
			if missing != nil && output.As(missing).Code != output.CodeNotFound {
				return missing
			}
			var lines []ops.EventLine
			for _, path := range events {
				err := ops.ReadEvents(path, func(e ops.EventLine) {
					if k := (driver.Key{Consumer: e.Consumer}); e.Key == args[0] && l.scope.has(k) && (missing != nil || e.Consumer == r.Key.Consumer) {
						lines = append(lines, e)
					}
				})
				if err != nil {
					return output.Usage("--events: %w", err)
				}
			}
			if missing != nil && len(lines) == 0 {
				return missing
			}
			if missing != nil {
				r.Key = driver.Key{Consumer: lines[0].Consumer, Raw: args[0]}
			}
			in, err := ops.Gather(cmd.Context(), l.store, r)
			if err != nil {
				return err
			}
			in.Events, in.CLI = lines, commands(l.recordFlags.store, l.queue, l.scope, r.Key.Consumer)
			s := ops.Explain(in)
			if err := a.p.Object(s, func(b *strings.Builder) { textTimeline(b, s) }); err != nil {
				return err
			}
			return missing
		}),
	}
	c.Flags().StringArrayVar(&events, "events", nil, "events file of a worker (may be repeated)")
	return c
}

func textTimeline(b *strings.Builder, s ops.Timeline) {
	fmt.Fprintf(b, "key %s of consumer %s: %s\n", words.Printable(s.Key, 0), words.Printable(s.Consumer, 0), s.State)
	for _, t := range s.Sentences {
		mark := " "
		if t.Doubt {
			mark = "!"
		}
		fmt.Fprintf(b, "%s %s %s\n", mark, t.At.Format("2006-01-02T15:04:05.000Z"), words.Printable(t.Text, 0))
	}
	if s.DuplicatesNote != "" {
		fmt.Fprintf(b, "Duplicates: %d (%s)\n", s.Duplicates, words.Printable(s.DuplicatesNote, 0))
	}
	b.WriteString(words.Printable(s.Verdict, 0) + "\n")
	if s.Advice != "" {
		b.WriteString("To do: " + words.Printable(s.Advice, 0) + "\n")
	}
	for _, c := range s.Commands {
		b.WriteString("  " + words.Printable(c, 0) + "\n")
	}
}

// commands proposes commands on the same store and queue ("" = the store's database). A variable stands for a URL with a secret.
func commands(store, queue string, sc scope, consumer string) *ops.CLI {
	word := func(raw, variable string) string {
		if open.Redact(raw) != raw {
			return `"$` + variable + `"`
		}
		return words.Quote(raw)
	}
	c := &ops.CLI{Store: word(store, "SEMEL_STORE")}
	raw, variable := queue, "SEMEL_QUEUE"
	if raw == "" || raw == store {
		raw, variable, c.Own = store, "SEMEL_STORE", true
	}
	place, err := open.Parse("queue", raw)
	if err != nil || place.HasQueues("queue") != nil {
		raw, c.Own = "", false
	} else if place.Queue == "" && open.Redact(raw) == raw { // a consumer is named after its queue unless somebody chose otherwise
		sep := "?"
		if strings.Contains(raw, "?") {
			sep = "&"
		}
		raw += sep + "queue=" + url.QueryEscape(consumer)
	}
	if c.Queue = `"$SEMEL_QUEUE"`; raw != "" {
		c.Queue = word(raw, variable)
	}
	if sc.consumer == "" || sc.consumer != sc.queue {
		c.Consumer = consumer
	}
	return c
}

package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/story"
	"github.com/semel-dev/semel/driver"
)

// record is what is printed of a record (contract section 6).
type record struct {
	Key               string   `json:"key"`
	Consumer          string   `json:"consumer"`
	Tenant            string   `json:"tenant,omitempty"`
	State             string   `json:"state"`
	Generation        uint32   `json:"generation"`
	Attempt           int      `json:"attempt"`
	Failures          int      `json:"failures"`
	Token             uint64   `json:"token"`
	Takeover          string   `json:"takeover"`
	Unknown           bool     `json:"unknown"`
	Fingerprint       string   `json:"fingerprint,omitempty"`
	BodyDigest        string   `json:"body_digest,omitempty"`
	CreatedAt         string   `json:"created_at,omitempty"`
	UpdatedAt         string   `json:"updated_at,omitempty"`
	CompletedAt       string   `json:"completed_at,omitempty"`
	LeaseUntil        string   `json:"lease_until,omitempty"`
	RetryAt           string   `json:"retry_at,omitempty"`
	RetainUntil       string   `json:"retain_until,omitempty"`
	Result            *string  `json:"result,omitempty"`
	ResultBase64      string   `json:"result_base64,omitempty"`
	Reason            string   `json:"reason,omitempty"`
	Disposed          bool     `json:"disposed,omitempty"`
	Version           string   `json:"version,omitempty"`
	Applied           string   `json:"applied,omitempty"`
	Newest            string   `json:"newest,omitempty"`
	Deliveries        []string `json:"deliveries,omitempty"`
	UncertaintyEvents int      `json:"uncertainty_events"`
	Steps             []step   `json:"steps,omitempty"`
}

func recordOf(r driver.Record) record {
	out := record{
		Key: r.Key.Raw, Consumer: r.Key.Consumer, Tenant: r.Key.Tenant, State: r.State.String(), Generation: r.Generation,
		Attempt: r.Attempt, Failures: r.Failures, Token: r.Token, Takeover: r.Takeover.String(), Unknown: r.Unknown,
		Fingerprint: hex.EncodeToString([]byte(r.Fingerprint)), CreatedAt: rfc3339(r.CreatedAt), UpdatedAt: rfc3339(r.UpdatedAt),
		CompletedAt: rfc3339(r.CompletedAt), RetainUntil: rfc3339(r.RetainUntil), Reason: r.Reason, Disposed: r.Disposed,
		Deliveries: r.Deliveries, UncertaintyEvents: r.Uncertainty,
		Version: r.Watermark.Running.String(), Applied: r.Watermark.Applied.String(),
		Newest: r.Watermark.Newest.String(),
	}
	if r.BodyDigest != 0 {
		out.BodyDigest = fmt.Sprintf("%016x", uint64(r.BodyDigest))
	}
	switch r.State {
	case driver.Completed:
		out.Result, out.ResultBase64 = textOr64(r.Result)
	case driver.InProgress:
		out.LeaseUntil = rfc3339(r.LeaseUntil)
	case driver.Released:
		out.RetryAt = rfc3339(r.RetryAt)
	case driver.Absent, driver.FailedState, driver.Uncertain:
	}
	return out
}

func (a *app) recordsCommand() *cobra.Command {
	f := &recordFlags{}
	c := group("records", "Idempotency records: ls, get, explain, release, resolve, sweep", scopeHelp,
		a.recordsLs(f), a.recordsGet(f), a.recordsExplain(f), a.recordsRelease(f), a.recordsResolve(f), a.recordsSweep(f))
	p := c.PersistentFlags()
	p.StringVar(&f.store, "store", "", "URL of the record store (default: --queue)")
	p.StringVar(&f.queue, "queue", "", "URL of the queue, where its dead letters are not in the store's database")
	f.bind(p)
	p.StringVar(&f.tenant, "tenant", "", "tenant of the key")
	return c
}

func (a *app) recordsLs(f *recordFlags) *cobra.Command {
	var state string
	list := recordList{limit: 100, order: orderNewest}
	c := &cobra.Command{
		Use: "ls --store URL", Short: "List records, those first that were changed last", Args: noArgs,
		Long: `ls lists the records that were changed last. No store has an index by that time, so all records are read and --limit of them
are kept; after half a minute ls stops, unless you say --order newest yourself. --order any reads no more than it lists.
--state UNCERTAIN is fast on SQLite and PostgreSQL.`,
		Example: `  semel records ls --store sqlite:shop.db --state UNCERTAIN -o jsonl
  semel records ls --store 'postgres://shop@db.example.org/shop?queue=orders' --order any --limit 20`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			var filter driver.RecordFilter
			if list.limit < 0 {
				return output.Usage("--limit must not be negative")
			}
			if err := choice("order", list.order, recordOrders); err != nil {
				return err
			}
			list.asked = cmd.Flags().Changed("order")
			if state != "" {
				if err := choice("state", strings.ToUpper(state), recordStates()); err != nil {
					return err
				}
				filter.State, _ = driver.ParseState(strings.ToUpper(state))
			}
			l, err := f.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			filter.Consumer = l.scope.consumer
			rs, more, err := list.of(cmd.Context(), l, filter)
			if err != nil {
				return err
			}
			if len(rs) == 0 {
				a.noteOutside(cmd.Context(), l)
			}
			if more {
				a.p.Notef("there are more: --limit %d, or 0 for all; --state and --consumer select", 10*list.limit)
			}
			all := make([]record, len(rs))
			for i, r := range rs {
				all[i] = recordOf(r)
			}
			head := []string{"key", "consumer", "state", "attempt", "token", "doubts", "updated", "reason"}
			return output.List(a.p, all, head, func(r record) []any {
				return []any{r.Key, r.Consumer, r.State, r.Attempt, r.Token, r.UncertaintyEvents, r.UpdatedAt, r.Reason}
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only records in this state: "+join(recordStates()))
	fixed(c.Flags(), "state", recordStates()...)
	c.Flags().IntVar(&list.limit, "limit", list.limit, "at most so many (0: all)")
	c.Flags().StringVar(&list.order, "order", list.order, "newest (activity first), oldest (first made first) or any")
	fixed(c.Flags(), "order", recordOrders...)
	return c
}

func (a *app) recordsGet(f *recordFlags) *cobra.Command {
	return &cobra.Command{
		Use: "get KEY --store URL", Short: "Show one record (exit 3 when there is none)", Args: oneArg("key"),
		Example: "  semel records get 'order-12345|charge' --store 'sqlite:shop.db?queue=orders' -o json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			l, err := f.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			r, err := l.find(cmd.Context(), args[0])
			if err != nil {
				return l.remembered(cmd.Context(), args[0], err)
			}
			rows, err := l.journal(cmd.Context(), r)
			if err != nil {
				return err
			}
			v := recordOf(r)
			v.Steps = stepsOf(rows)
			return a.p.Object(v, func(w io.Writer) error { return textRecord(w, v) })
		},
	}
}

func textRecord(w io.Writer, r record) error {
	result := r.ResultBase64
	if r.Result != nil {
		result = *r.Result
	}
	for _, line := range [][2]string{
		{"key", r.Key}, {"consumer", r.Consumer}, {"tenant", r.Tenant}, {"state", r.State},
		{"version", r.Version}, {"applied", r.Applied}, {"newest", r.Newest},
		{"generation", fmt.Sprint(r.Generation)}, {"attempt", fmt.Sprint(r.Attempt)}, {"token", fmt.Sprint(r.Token)},
		{"doubts", fmt.Sprint(r.UncertaintyEvents)}, {"policy", r.Takeover}, {"created", r.CreatedAt}, {"updated", r.UpdatedAt},
		{"completed", r.CompletedAt}, {"lease until", r.LeaseUntil}, {"retry at", r.RetryAt}, {"keep until", r.RetainUntil},
		{"reason", r.Reason}, {"result", result}, {"body digest", r.BodyDigest}, {"messages", strings.Join(r.Deliveries, " ")},
	} {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-12s %s\n", line[0], output.Printable(line[1], 2000)); err != nil {
			return err
		}
	}
	return textSteps(w, r.Steps)
}

func (a *app) recordsExplain(f *recordFlags) *cobra.Command {
	var events []string
	c := &cobra.Command{
		Use: "explain KEY --store URL", Short: "Tell the story of one key", Args: oneArg("key"),
		Long: `explain tells what happened to a key, from its record, from the journal of its steps, from what operators did to it, and
from the events files that workers wrote (work --events): who ran it when, why there were duplicates, and each moment from
which nobody could know whether the effect happened.`,
		Example: "  semel records explain order-12345 --store 'sqlite:shop.db?queue=orders' --events worker1.jsonl --events worker2.jsonl",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			l, err := f.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			r, missing := l.find(cmd.Context(), args[0])
			if missing != nil && output.As(missing).Code != output.CodeNotFound {
				return missing
			}
			var lines []story.Line
			for _, path := range events {
				err := story.Read(path, func(e story.Line) {
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
			acts, err := l.acts(cmd.Context(), r.Key)
			if err != nil {
				return err
			}
			rows, err := l.journal(cmd.Context(), r)
			if err != nil {
				return err
			}
			s := story.Tell(r, lines, acts...)
			s.AddSteps(rows)
			if err := a.p.Object(s, func(w io.Writer) error { return textStory(w, s) }); err != nil {
				return err
			}
			if missing != nil {
				return missing
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&events, "events", nil, "events file of a worker (may be repeated)")
	return c
}

func textStory(w io.Writer, s story.Story) error {
	if _, err := fmt.Fprintf(w, "key %s of consumer %s: %s\n", output.Printable(s.Key, 0), output.Printable(s.Consumer, 0), s.State); err != nil {
		return err
	}
	for _, t := range s.Sentences {
		mark := " "
		if t.Doubt {
			mark = "!"
		}
		if _, err := fmt.Fprintf(w, "%s %s %s\n", mark, t.At.Format("2006-01-02T15:04:05.000Z"), output.Printable(t.Text, 0)); err != nil {
			return err
		}
	}
	text := output.Printable(s.Verdict, 0)
	if s.Advice != "" {
		text += "\nTo do: " + output.Printable(s.Advice, 0)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

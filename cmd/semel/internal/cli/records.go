package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/letters"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
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
	Deliveries        []string `json:"deliveries,omitempty"`
	UncertaintyEvents int      `json:"uncertainty_events"`
}

func recordOf(r driver.Record) record {
	out := record{
		Key: r.Key.Raw, Consumer: r.Key.Consumer, Tenant: r.Key.Tenant, State: r.State.String(), Generation: r.Generation,
		Attempt: r.Attempt, Failures: r.Failures, Token: r.Token, Takeover: r.Takeover.String(), Unknown: r.Unknown,
		Fingerprint: hex.EncodeToString([]byte(r.Fingerprint)), CreatedAt: rfc3339(r.CreatedAt), UpdatedAt: rfc3339(r.UpdatedAt),
		CompletedAt: rfc3339(r.CompletedAt), RetainUntil: rfc3339(r.RetainUntil), Reason: r.Reason, Disposed: r.Disposed,
		Deliveries: r.Deliveries, UncertaintyEvents: r.Uncertainty,
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

// recordFlags are shared by the commands on records.
type recordFlags struct{ store, queue, consumer, tenant string }

// ledger is an open store, with what is needed to find keys and their letters.
type ledger struct {
	*recordFlags
	set   *open.Set
	store driver.Store
	insp  driver.RecordInspector
}

func (f *recordFlags) open(ctx context.Context, readOnly bool) (*ledger, error) {
	if f.store == "" {
		f.store = f.queue
	}
	l := &ledger{recordFlags: f, set: open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: readOnly})}
	st, err := l.set.Store(ctx, f.store)
	if err != nil {
		return nil, err
	}
	l.store = st
	insp, ok := st.(driver.RecordInspector)
	if !ok {
		return nil, errors.Join(output.Usage("store %s shows no records", st.Features().Name), l.set.Close())
	}
	l.insp = insp
	return l, nil
}

// find returns the record of a key. Without --consumer it is looked for under the queue that the URL names, then under
// all; a key of several consumers is an error that names them.
func (l *ledger) find(ctx context.Context, raw string) (driver.Record, error) {
	var none driver.Record
	if err := semel.CheckKey(raw); err != nil {
		return none, output.Usage("%w", err)
	}
	if l.consumer != "" {
		r, ok, err := l.insp.Record(ctx, driver.Key{Consumer: l.consumer, Tenant: l.tenant, Raw: raw})
		if err != nil || ok {
			return r, err
		}
		return none, output.NotFound("there is no record of key %q for consumer %q", raw, l.consumer)
	}
	candidates, err := l.consumers(ctx)
	if err != nil {
		return none, err
	}
	var found []driver.Record
	for _, c := range candidates {
		r, ok, err := l.insp.Record(ctx, driver.Key{Consumer: c, Tenant: l.tenant, Raw: raw})
		if err != nil {
			return none, err
		}
		if ok {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		if found, err = l.scan(ctx, raw); err != nil {
			return none, err
		}
	}
	switch len(found) {
	case 0:
		return none, output.NotFound("there is no record of key %q", raw)
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, r := range found {
		names[i] = r.Key.Consumer
	}
	return none, output.Usage("key %q has records of %d consumers: %s", raw, len(found), join(names)).
		WithHint("--consumer %s", names[0])
}

// consumers guesses whose records there are: a consumer is named after its queue unless somebody chose otherwise.
func (l *ledger) consumers(ctx context.Context) ([]string, error) {
	t, err := open.Parse("store", l.recordFlags.store)
	if err != nil {
		return nil, err
	}
	if t.Queue != "" {
		return []string{t.Queue}, nil
	}
	return l.set.Queues(ctx, "store", l.recordFlags.store)
}

// scan looks through all records.
func (l *ledger) scan(ctx context.Context, raw string) ([]driver.Record, error) {
	all, err := l.insp.Records(ctx, driver.RecordFilter{})
	if err != nil {
		return nil, err
	}
	var out []driver.Record
	for _, r := range all {
		if r.Key.Raw == raw && (l.tenant == "" || l.tenant == r.Key.Tenant) {
			out = append(out, r)
		}
	}
	return out, nil
}

// box opens the queue that holds the letter id, for working on it: --queue, the URL's, else whichever has it.
func (l *ledger) box(ctx context.Context, consumer, id string) (letters.Box, error) {
	raw := l.queue
	if raw == "" {
		raw = l.recordFlags.store
	}
	t, err := open.Parse("queue", raw)
	if err != nil {
		return letters.Box{}, err
	}
	names := []string{t.Queue}
	if t.Queue == "" {
		all, err := l.set.Queues(ctx, "queue", raw)
		if err != nil {
			return letters.Box{}, err
		}
		names = append([]string{consumer}, all...)
	}
	var first letters.Box
	for i, name := range names {
		q, err := l.set.QueueOf(ctx, t, name)
		if err != nil {
			return letters.Box{}, err
		}
		b, err := letters.NewBox(q, l.store)
		if err != nil {
			return b, output.Usage("%w", err)
		}
		if i == 0 {
			first = b
		}
		if _, ok, err := b.Letters.Letter(ctx, id); err != nil || ok {
			return b, err
		}
	}
	return first, nil
}

func (a *app) recordsCommand() *cobra.Command {
	f := &recordFlags{}
	c := group("records", "Idempotency records: ls, get, explain, release, resolve, sweep", "",
		a.recordsLs(f), a.recordsGet(f), a.recordsExplain(f), a.recordsRelease(f), a.recordsResolve(f), a.recordsSweep(f))
	p := c.PersistentFlags()
	p.StringVar(&f.store, "store", "", "URL of the record store (default: --queue)")
	p.StringVar(&f.queue, "queue", "", "URL of the queue, where its letters are not in the store's database")
	p.StringVar(&f.consumer, "consumer", "", "scope of the key (default: the queue of the URL, else all)")
	p.StringVar(&f.tenant, "tenant", "", "tenant of the key")
	return c
}

func (a *app) recordsLs(f *recordFlags) *cobra.Command {
	var state string
	var limit int
	c := &cobra.Command{
		Use: "ls --store URL", Short: "List records, oldest first", Args: noArgs,
		Example: "  semel records ls --store sqlite:shop.db --state UNCERTAIN -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			filter := driver.RecordFilter{Consumer: f.consumer, Limit: limit}
			if limit < 0 {
				return output.Usage("--limit must not be negative")
			}
			if state != "" {
				s, ok := driver.ParseState(strings.ToUpper(state))
				if !ok || s == driver.Absent {
					return output.Usage("--state %q is unknown (known: IN_PROGRESS, RELEASED, COMPLETED, FAILED, UNCERTAIN)", state)
				}
				filter.State = s
			}
			l, err := f.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			rs, err := l.insp.Records(cmd.Context(), filter)
			if err != nil {
				return err
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
	c.Flags().StringVar(&state, "state", "", "only records in this state")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (0: all)")
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
				return err
			}
			v := recordOf(r)
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
		{"generation", fmt.Sprint(r.Generation)}, {"attempt", fmt.Sprint(r.Attempt)}, {"token", fmt.Sprint(r.Token)},
		{"doubts", fmt.Sprint(r.UncertaintyEvents)}, {"policy", r.Takeover}, {"created", r.CreatedAt}, {"updated", r.UpdatedAt},
		{"completed", r.CompletedAt}, {"lease until", r.LeaseUntil}, {"retry at", r.RetryAt}, {"keep until", r.RetainUntil},
		{"reason", r.Reason}, {"result", result}, {"messages", strings.Join(r.Deliveries, " ")},
	} {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-12s %s\n", line[0], output.Printable(line[1], 2000)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) recordsExplain(f *recordFlags) *cobra.Command {
	var events []string
	c := &cobra.Command{
		Use: "explain KEY --store URL", Short: "Tell the story of one key", Args: oneArg("key"),
		Long: `explain tells what happened to a key, from its record and from the events files that workers wrote (work --events):
who ran it when, why there were duplicates, and each moment from which nobody could know whether the effect happened.`,
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
					if e.Key == args[0] && (r.Key.Consumer == "" || e.Consumer == r.Key.Consumer) {
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
			s := story.Tell(r, lines)
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
	if _, err := fmt.Fprintf(w, "key %s of consumer %s: %s\n", output.Printable(s.Key, 0), s.Consumer, s.State); err != nil {
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
	text := s.Verdict
	if s.Advice != "" {
		text += "\nTo do: " + s.Advice
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func (a *app) recordsRelease(f *recordFlags) *cobra.Command {
	var yes, dry bool
	keep := config.Duration(semel.DefaultRetention)
	c := &cobra.Command{
		Use: "release KEY --store URL", Short: "Take a claim away from its worker, so that the next delivery runs", Args: oneArg("key"),
		Long: `release ends the claim of a key that is IN_PROGRESS. Its worker is fenced: whatever it still writes is refused. Its
effect may have happened, which the record remembers. A claim ends by itself when its lease does: release is for not
waiting.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			l, err := f.open(ctx, false)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			r, err := l.find(ctx, args[0])
			if err != nil {
				return err
			}
			op, ok := l.store.(driver.Operator)
			if !ok {
				return output.Usage("store %s takes no operations", l.store.Features().Name)
			}
			if r.State != driver.InProgress {
				return output.Negative("key %q is %s: only claims (IN_PROGRESS) are released", args[0], r.State).
					WithHint("semel records explain %s", args[0])
			}
			if !dry {
				q := fmt.Sprintf("take key %s away from its worker (its lease lasts until %s)", args[0], rfc3339(r.LeaseUntil))
				if err := a.confirm(yes, q); err != nil {
					return err
				}
				after, out, err := op.Operate(ctx, driver.Operation{
					Kind: driver.ForceRelease, Key: r.Key, Keep: time.Duration(keep), Reason: "released by " + whoami(),
				})
				if err != nil {
					return fmt.Errorf("release key %q: %w", args[0], err)
				}
				if out != driver.Applied {
					return output.Negative("key %q is %s by now", args[0], after.State)
				}
				r = after
			}
			v := recordOf(r)
			return a.p.Object(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s key %s\n", verb(dry, "release", "released"), args[0])
				return err
			})
		},
	}
	destructive(c, &yes, &dry)
	c.Flags().Var(&keep, "retention", "how long the record is kept")
	return c
}

func (a *app) recordsSweep(f *recordFlags) *cobra.Command {
	var yes, dry bool
	horizon, limit := config.Duration(semel.DefaultRetention), 0
	c := &cobra.Command{
		Use: "sweep --store URL", Short: "Remove records past their retention; park claims abandoned for longer than the horizon", Args: noArgs,
		Long: "sweep does now what every worker does once a minute.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			l, err := f.open(ctx, false)
			if err != nil {
				return err
			}
			defer closing(&err, l.set)
			sw, ok := l.store.(driver.Sweeper)
			if !ok {
				return output.Usage("store %s sweeps by itself", l.store.Features().Name)
			}
			var total driver.Swept
			if dry {
				total, err = l.wouldSweep(ctx, time.Duration(horizon))
			} else if err = a.confirm(yes, "remove the records that are past their retention"); err == nil {
				total, err = sweepAll(ctx, sw, time.Duration(horizon), limit)
			}
			if err != nil {
				return err
			}
			v := map[string]any{"purged": total.Purged, "stranded": total.Stranded, "dry_run": dry}
			return a.p.Object(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %d records, %s %d abandoned claims\n", verb(dry, "purge", "purged"), total.Purged,
					verb(dry, "park", "parked"), total.Stranded)
				return err
			})
		},
	}
	destructive(c, &yes, &dry)
	c.Flags().Var(&horizon, "horizon", "claims abandoned for longer are parked")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (0: all)")
	return c
}

func sweepAll(ctx context.Context, sw driver.Sweeper, horizon time.Duration, limit int) (total driver.Swept, err error) {
	for {
		step := 1000
		if limit > 0 {
			step = min(step, limit-total.Purged-total.Stranded)
		}
		n, more, err := sw.Sweep(ctx, horizon, step)
		total.Purged += n.Purged
		total.Stranded += n.Stranded
		if err != nil {
			return total, fmt.Errorf("sweep: %w", err)
		}
		if !more || limit > 0 && total.Purged+total.Stranded >= limit {
			return total, nil
		}
	}
}

// wouldSweep counts by the same decision that the store makes.
func (l *ledger) wouldSweep(ctx context.Context, horizon time.Duration) (n driver.Swept, err error) {
	all, err := l.insp.Records(ctx, driver.RecordFilter{})
	now := time.Now()
	for _, r := range all {
		switch _, v := driver.DecideSweep(r, now, horizon); v {
		case driver.SweepPurge:
			n.Purged++
		case driver.SweepStrand:
			n.Stranded++
		case driver.SweepKeep:
		}
	}
	return n, err
}

// whoami names the person for the record's reason.
func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}

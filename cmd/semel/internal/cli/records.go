package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// record is the printed form of a record (contract section 6).
type record struct {
	Key               string   `json:"key"`
	Consumer          string   `json:"consumer"`
	Tenant            string   `json:"tenant,omitempty"`
	State             string   `json:"state"`
	Ended             string   `json:"ended,omitempty"` // the state before an EXPIRED record expired
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
	Deliveries        []string `json:"deliveries,omitempty"`
	UncertaintyEvents int      `json:"uncertainty_events"`
	Steps             []step   `json:"steps,omitempty"`
	// LeaseExpired: the state is IN_PROGRESS, and the lease has ended by this machine's clock.
	LeaseExpired bool              `json:"lease_expired,omitempty"`
	Duplicates   *storedDuplicates `json:"duplicates,omitempty"`
}

// storedDuplicates are the duplicates of a key: the store counts all and keeps the newest. Some can be missing.
type storedDuplicates struct {
	Total  int64       `json:"total"`
	Newest []duplicate `json:"newest"`
}

type duplicate struct {
	At            string `json:"at"`
	MessageID     string `json:"message_id"`
	Decision      string `json:"decision"`
	Cause         string `json:"cause"`
	Worker        string `json:"worker"`
	Queue         string `json:"queue"`
	DeliveryCount int    `json:"delivery_count,omitempty"`
}

func duplicatesOf(c ops.Duplicates) *storedDuplicates {
	if c.Total == 0 {
		return nil
	}
	out := &storedDuplicates{Total: c.Total}
	for _, d := range c.Newest {
		out.Newest = append(out.Newest, duplicate{
			At: rfc3339(d.At), MessageID: d.MessageID, Decision: d.Decision, Cause: d.Cause, Worker: d.Worker, Queue: d.Queue,
			DeliveryCount: d.Count,
		})
	}
	return out
}

func recordOf(r driver.Record) record {
	out := record{
		Key: r.Key.Raw, Consumer: r.Key.Consumer, Tenant: r.Key.Tenant, State: r.State.String(), Generation: r.Generation,
		Attempt: r.Attempt, Failures: r.Failures, Token: r.Token, Takeover: r.Takeover.String(), Unknown: r.Unknown,
		Fingerprint: hex.EncodeToString([]byte(r.Fingerprint)), CreatedAt: rfc3339(r.CreatedAt), UpdatedAt: rfc3339(r.UpdatedAt),
		CompletedAt: rfc3339(r.CompletedAt), RetainUntil: rfc3339(r.RetainUntil), Reason: ops.Reason(r.Reason), Disposed: r.Disposed,
		Deliveries: r.Deliveries, UncertaintyEvents: r.Uncertainty,
		Version: r.Watermark.Running.String(), Applied: r.Watermark.Applied.String(),
	}
	if r.BodyDigest != 0 {
		out.BodyDigest = fmt.Sprintf("%016x", uint64(r.BodyDigest))
	}
	switch r.State {
	case driver.Completed:
		out.Result, out.ResultBase64 = textOr64(r.Result)
	case driver.InProgress:
		out.LeaseUntil, out.LeaseExpired = rfc3339(r.LeaseUntil), time.Now().After(r.LeaseUntil)
	case driver.Released:
		out.RetryAt = rfc3339(r.RetryAt)
	case driver.Expired:
		out.Ended = r.Ended.String()
	case driver.Absent, driver.FailedState, driver.Uncertain:
	}
	return out
}

func (a *app) recordsCommand() *cobra.Command {
	f := &recordFlags{}
	c := group("records", "Idempotency records: ls, get, explain, release, reopen, resolve, erase, sweep", scopeHelp,
		a.recordsLs(f), a.recordsGet(f), a.recordsExplain(f), a.recordsRelease(f), a.recordsReopen(f), a.recordsResolve(f),
		a.recordsErase(f), a.recordsSweep(f))
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
		Use: "ls --store URL", Short: "List records, the last changed first", Args: noArgs,
		Long: `ls lists the records that changed last. No store has an index for that, so ls reads all records and keeps --limit of them. It stops
after half a minute, unless you pass --order newest. --order any reads no more records than it lists. --state UNCERTAIN is fast,
except on DynamoDB.`,
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
			rs, more, unread := list.of(cmd.Context(), l, filter)
			if unread != nil && !errors.Is(unread, driver.ErrUnreadable) {
				return unread
			}
			if len(rs) == 0 && unread == nil {
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
			err = output.List(a.p, all, head, func(r record) []any {
				return []any{r.Key, r.Consumer, r.State, r.Attempt, r.Token, r.UncertaintyEvents, r.UpdatedAt, r.Reason}
			})
			if err == nil && unread != nil {
				err = output.Failed("%w", unread).WithHint("the newest semel of this store reads the records that a newer one wrote")
			}
			return err
		},
	}
	c.Flags().StringVar(&state, "state", "", "only records in this state: "+join(recordStates()))
	fixed(c.Flags(), "state", recordStates()...)
	c.Flags().IntVar(&list.limit, "limit", list.limit, "at most N (0: all)")
	c.Flags().StringVar(&list.order, "order", list.order, "newest (last changed first), oldest (first created first) or any")
	fixed(c.Flags(), "order", recordOrders...)
	return c
}

func (a *app) recordsGet(f *recordFlags) *cobra.Command {
	return &cobra.Command{
		Use: "get KEY --store URL", Short: "Show one record (exit 3 if it does not exist)", Args: oneArg("key"),
		Example: "  semel records get 'order-12345|charge' --store 'sqlite:shop.db?queue=orders' -o json",
		RunE: f.with(true, func(cmd *cobra.Command, l *ledger, args []string) error {
			r, err := l.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			rows, err := ops.Steps(cmd.Context(), l.store, r)
			if err != nil {
				return err
			}
			v := recordOf(r)
			v.Steps = stepsOf(rows)
			c, err := ops.DuplicatesOf(cmd.Context(), l.store, r.Key)
			if err != nil {
				return err
			}
			v.Duplicates = duplicatesOf(c)
			return a.p.Object(v, func(b *strings.Builder) { textRecord(b, v) })
		}),
	}
}

func textRecord(b *strings.Builder, r record) {
	result := r.ResultBase64
	if r.Result != nil {
		result = *r.Result
	}
	expired, duplicates := "", ""
	if r.LeaseExpired {
		expired = " (ended)"
	}
	if c := r.Duplicates; c != nil {
		last := c.Newest[len(c.Newest)-1]
		duplicates = fmt.Sprintf("%d, the latest at %s: message %s (%s); some may be missing", c.Total, last.At, last.MessageID, last.Decision)
	}
	textFields(b, 2000, [][2]string{
		{"key", r.Key}, {"consumer", r.Consumer}, {"tenant", r.Tenant}, {"state", r.State}, {"ended", r.Ended},
		{"version", r.Version}, {"applied", r.Applied},
		{"generation", fmt.Sprint(r.Generation)}, {"attempt", fmt.Sprint(r.Attempt)}, {"token", fmt.Sprint(r.Token)},
		{"doubts", fmt.Sprint(r.UncertaintyEvents)}, {"policy", r.Takeover}, {"created", r.CreatedAt}, {"updated", r.UpdatedAt},
		{"completed", r.CompletedAt}, {"lease until", r.LeaseUntil + expired}, {"retry at", r.RetryAt}, {"keep until", r.RetainUntil},
		{"reason", r.Reason}, {"result", result}, {"body digest", r.BodyDigest}, {"messages", strings.Join(r.Deliveries, " ")},
		{"duplicates", duplicates},
	})
	textSteps(b, r.Steps)
}

// The orders of records ls.
const (
	orderNewest = "newest"
	orderOldest = "oldest"
	orderAny    = "any"
)

var recordOrders = []string{orderNewest, orderOldest, orderAny}

// recordStates lists the states that a record can have.
func recordStates() (out []string) {
	for s := driver.InProgress; s <= driver.Expired; s++ {
		out = append(out, s.String())
	}
	return out
}

// listTime bounds a list whose order nobody asked for, because it reads all records.
const listTime = 30 * time.Second

// recordList is which records ls shows.
type recordList struct {
	limit int // 0 = all
	order string
	asked bool // a person asked for the order
}

// of lists the records of a filter; more reports that limit left some out.
func (r recordList) of(ctx context.Context, l *ledger, f driver.RecordFilter) (rs []driver.Record, more bool, err error) {
	if r.limit > 0 {
		f.Limit = r.limit + 1
	}
	if f.Newest = r.order == orderNewest; r.order == orderAny {
		err = l.scanAll(ctx, f, func(rec driver.Record) error {
			rs = append(rs, rec)
			return nil
		})
	} else {
		bounded := ctx
		if r.limit > 0 && !r.asked {
			var cancel context.CancelFunc
			bounded, cancel = context.WithTimeout(ctx, listTime)
			defer cancel()
		}
		rs, err = l.insp.Records(bounded, f)
		if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
			err = output.Failed("the records were not read within %s", listTime).
				WithHint("--order any lists some of them, --order %s reads them all however long that takes", r.order)
		}
	}
	if more = r.limit > 0 && len(rs) > r.limit; more {
		rs = rs[:r.limit]
	}
	return rs, more, err
}

// step is the printed form of a step of a run (mode E).
type step struct {
	Name         string  `json:"name"`
	State        string  `json:"state"`
	Undo         bool    `json:"undo"`
	Token        uint64  `json:"token"`
	Failures     int     `json:"failures,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Result       *string `json:"result,omitempty"`
	ResultBase64 string  `json:"result_base64,omitempty"`
	UpdatedAt    string  `json:"updated_at,omitempty"`
}

func stepsOf(rows []driver.Step) []step {
	var all []step
	for _, s := range rows {
		x := step{
			Name: s.Name, State: s.State.String(), Undo: s.Undo, Token: s.Token, Failures: s.Failures, Reason: ops.Reason(s.Reason),
			UpdatedAt: rfc3339(s.UpdatedAt),
		}
		if len(s.Result) > 0 {
			x.Result, x.ResultBase64 = textOr64(s.Result)
		}
		all = append(all, x)
	}
	return all
}

// textSteps prints a line for each step; that of the run itself has no name.
func textSteps(b *strings.Builder, steps []step) {
	for _, s := range steps {
		name, rest := s.Name, ""
		if name == "" {
			name = "(the run)"
		}
		if s.Failures > 0 {
			rest += fmt.Sprintf(" failed %d times:", s.Failures)
		}
		if s.Reason != "" {
			rest += " " + s.Reason
		}
		if s.Result != nil {
			rest += " " + *s.Result
		}
		fmt.Fprintf(b, "%-12s %-12s %s%s\n", "step", s.State, words.Printable(name, 200), words.Printable(rest, 500))
	}
}

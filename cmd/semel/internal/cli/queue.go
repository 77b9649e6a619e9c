package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/nearest"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// queueStats is what is printed of a queue.
type queueStats struct {
	Queue         string  `json:"queue"`
	Visible       int64   `json:"visible"`
	InFlight      int64   `json:"in_flight"`
	Delayed       int64   `json:"delayed"`
	DeadLetters   int64   `json:"dead_letters"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

func statsOf(ctx context.Context, q driver.Queue) (queueStats, error) {
	i, ok := driver.As[driver.QueueInspector](q)
	if !ok {
		return queueStats{}, output.Usage("queue %s cannot be inspected", q.Features().Name)
	}
	s, err := i.Stats(ctx)
	if err != nil {
		return queueStats{}, fmt.Errorf("read queue %s: %w", q.Features().Name, err)
	}
	return queueStats{
		Queue: q.Features().Name, Visible: s.Visible, InFlight: s.InFlight, Delayed: s.Delayed, DeadLetters: s.DeadLetters,
		OldestSeconds: s.Oldest.Seconds(),
	}, nil
}

var statsHeader = []string{"queue", "visible", "in flight", "delayed", "dead letters", "oldest"}

func (s queueStats) row() []any {
	return []any{
		s.Queue, s.Visible, s.InFlight, s.Delayed, s.DeadLetters,
		(time.Duration(s.OldestSeconds * float64(time.Second))).Round(time.Second).String(),
	}
}

func (a *app) queueCommand() *cobra.Command {
	var url string
	c := group("queue", "Queues: create, ls, stats, peek, purge", "",
		a.queueCreate(&url), a.queueLs(&url), a.queueStats(&url), a.queuePeek(&url), a.queuePurge(&url))
	c.PersistentFlags().StringVar(&url, "queue", "", "URL of the queue")
	return c
}

func (a *app) queueCreate(url *string) *cobra.Command {
	var how open.NewQueue
	c := &cobra.Command{
		Use: "create --queue URL", Short: "Create a queue, or its database, if it does not exist", Args: noArgs,
		Long: `create makes the database of a queue. With sqs:// it makes the queue and a dead-letter queue (NAME-dead, named in its redrive
policy), with nats:// a stream and its consumer, with redis:// a stream and its group, with amqp:// a quorum queue without a delivery
limit, with kafka:// a topic. An existing queue stays as it is. Records count the attempts (semel work --max-attempts).
--max-receives must be far higher, because deferred duplicates are receives, too: semel doctor computes how high.`,
		Example: `  semel queue create --queue 'sqlite:shop.db?queue=orders'
  semel queue create --queue 'sqs://orders?region=eu-west-1' \
    --default-visibility 5m --message-retention 14d
  semel queue create --queue sqs://orders.fifo
  semel queue create --queue 'nats://127.0.0.1?queue=ORDERS'
  semel queue create --queue 'amqp://127.0.0.1?queue=orders'`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if how.MaxReceives < 0 || how.MaxReceives > 1000 {
				return output.Usage("--max-receives is out of range").WithHint("use 1 to 1000, or leave it away")
			}
			set := open.New(open.Options{OneShot: true})
			defer closing(&err, set)
			q, err := set.Create(cmd.Context(), "queue", *url, how)
			if err != nil {
				return err
			}
			name := q.Features().Name
			return a.p.Line(map[string]string{"queue": name}, "queue %s is ready", name)
		},
	}
	f := c.Flags()
	config.DurationVar(f, &how.Visibility, "default-visibility", "sqs://, nats://, redis://: how long a delivery is hidden from others, on SQS unless the receiver overrides it (default: 30s)")
	config.DurationVar(f, &how.Retention, "message-retention", "sqs://, nats://: how long a message is kept (default: 4d, on NATS forever)")
	f.IntVar(&how.MaxReceives, "max-receives", 0, "sqs://: receives after which SQS itself moves a message to the dead letters (default: 200, enough for the defaults of semel work)")
	return c
}

func (a *app) queueLs(url *string) *cobra.Command {
	return &cobra.Command{
		Use: "ls --queue URL", Short: "List the queues of a database", Args: noArgs,
		Example: "  semel queue ls --queue sqlite:shop.db -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			set := open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: true})
			defer closing(&err, set)
			names, err := set.Queues(ctx, "queue", *url)
			if err != nil {
				return err
			}
			t, err := open.Parse("queue", *url)
			if err != nil {
				return err
			}
			var all []queueStats
			for _, name := range names {
				q, err := set.QueueOf(ctx, t, name)
				if err != nil {
					return err
				}
				s, err := statsOf(ctx, q)
				if err != nil {
					return err
				}
				all = append(all, s)
			}
			return output.List(a.p, all, statsHeader, queueStats.row)
		},
	}
}

func (a *app) queueStats(url *string) *cobra.Command {
	return &cobra.Command{
		Use: "stats --queue URL", Short: "Count what a queue holds", Args: noArgs,
		Example: "  semel queue stats --queue 'sqlite:shop.db?queue=orders' -o json",
		RunE: withQueue(url, true, func(cmd *cobra.Command, q driver.Queue) error {
			s, err := statsOf(cmd.Context(), q)
			if err != nil {
				return err
			}
			if a.p.Format == output.Text {
				return output.List(a.p, []queueStats{s}, statsHeader, queueStats.row)
			}
			return a.p.Object(s, nil)
		}),
	}
}

// withQueue makes the function of a command that works on an existing queue.
func withQueue(url *string, readOnly bool, run func(*cobra.Command, driver.Queue) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		set := open.New(open.Options{OneShot: true, MustExist: true, ReadOnly: readOnly})
		defer closing(&err, set)
		q, err := existing(cmd.Context(), set, *url)
		if err != nil {
			return err
		}
		return run(cmd, q)
	}
}

// existing opens a queue that must exist. A queue that nothing was ever sent to is an error (exit 3).
func existing(ctx context.Context, set *open.Set, url string) (driver.Queue, error) {
	q, err := set.Queue(ctx, url)
	if errors.Is(err, open.ErrNoQueue) {
		e := output.As(err)
		return nil, output.NotFound("%w", err).WithHint("%s", e.Hint)
	}
	if err != nil {
		return nil, err
	}
	if open.ProvesQueue(url) {
		return q, nil
	}
	name := q.Features().Name
	there, others, err := queueThere(ctx, set, url, name)
	if err != nil {
		return nil, err
	}
	if there {
		return q, nil
	}
	e := output.NotFound("there is no queue %q", name)
	if others == "" {
		return nil, e.WithHint("semel send makes one; this database has none yet")
	}
	return nil, e.WithHint("%s", others)
}

// queueThere reports whether a database has a queue, and describes which others it has ("": none).
func queueThere(ctx context.Context, set *open.Set, url, name string) (there bool, others string, err error) {
	names, err := set.Queues(ctx, "queue", url)
	if err != nil || slices.Contains(names, name) || len(names) == 0 {
		return slices.Contains(names, name), "", err
	}
	const most = 10
	shown := names
	if len(names) > most {
		shown = append(slices.Clone(names[:most]), "…")
	}
	others = "this database has: " + join(shown)
	if meant := nearest.Name(name, names, 4); meant != "" {
		others += "; did you mean " + meant + "?"
	}
	return false, others, nil
}

// warnOfNewQueue logs that a worker's queue does not exist. The worker waits: the first message creates it.
func (a *app) warnOfNewQueue(ctx context.Context, set *open.Set, url, name string) {
	if t, err := open.Parse("queue", url); err != nil || t.Ephemeral() || open.ProvesQueue(url) {
		return
	}
	there, others, err := queueThere(ctx, set, url, name)
	switch {
	case err != nil || there:
	case others == "":
		a.log.Info(fmt.Sprintf("queue %s does not exist yet: its first message makes it", name))
	default:
		a.log.Warn(fmt.Sprintf("queue %s does not exist yet: its first message makes it; %s", name, others))
	}
}

// peeked is the printed form of a message.
type peeked struct {
	ID         string            `json:"id"`
	Group      string            `json:"group,omitempty"`
	SentAt     string            `json:"sent_at,omitempty"`
	Count      int               `json:"count"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBase64 string            `json:"body_base64,omitempty"`
	BodyBytes  int               `json:"body_bytes"`
}

func (a *app) queuePeek(url *string) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "peek --queue URL", Short: "Show messages without receiving them", Args: noArgs,
		Example: "  semel queue peek --queue 'sqlite:shop.db?queue=orders' --limit 3 -o jsonl",
		RunE: withQueue(url, true, func(cmd *cobra.Command, q driver.Queue) error {
			if limit < 1 {
				return output.Usage("--limit must be 1 or more")
			}
			i, ok := driver.As[driver.QueueInspector](q)
			if !ok {
				return output.Usage("queue %s cannot be inspected", q.Features().Name)
			}
			ds, err := i.Peek(cmd.Context(), limit)
			if errors.Is(err, driver.ErrUnsupported) {
				return output.Usage("%w", err).WithHint("semel queue stats counts; semel dlq ls lists dead letters")
			}
			if err != nil {
				return fmt.Errorf("peek: %w", err)
			}
			all := make([]peeked, len(ds))
			for k, d := range ds {
				all[k] = peeked{
					ID: d.ID, Group: d.Group, SentAt: rfc3339(d.SentAt), Count: d.Count, Headers: d.Headers, BodyBytes: len(d.Body),
				}
				all[k].Body, all[k].BodyBase64 = textOr64(d.Body)
			}
			return output.List(a.p, all, []string{"id", "group", "sent", "count", "bytes", "body"}, func(m peeked) []any {
				body := m.BodyBase64
				if m.Body != nil {
					body = *m.Body
				}
				return []any{m.ID, m.Group, m.SentAt, m.Count, m.BodyBytes, body}
			})
		}),
	}
	c.Flags().IntVar(&limit, "limit", 10, "messages to show")
	return c
}

func (a *app) queuePurge(url *string) *cobra.Command {
	var yes, dry bool
	c := &cobra.Command{
		Use: "purge --queue URL", Short: "Remove every message of a queue (dead letters and records stay)", Args: noArgs,
		Example: "  semel queue purge --queue 'sqlite:shop.db?queue=orders' --dry-run",
		RunE: withQueue(url, false, func(cmd *cobra.Command, q driver.Queue) error {
			ctx := cmd.Context()
			s, err := statsOf(ctx, q)
			if err != nil {
				return err
			}
			purger, ok := driver.As[driver.Purger](q)
			if !ok {
				return output.Usage("queue %s cannot be purged", s.Queue)
			}
			n := s.Visible + s.InFlight + s.Delayed
			if !dry {
				if err := a.confirm(yes, fmt.Sprintf("remove %s of queue %s for good", words.Count(n, "message"), s.Queue)); err != nil {
					return err
				}
				if n, err = purger.Purge(ctx); err != nil {
					return fmt.Errorf("purge: %w", err)
				}
			}
			return a.p.Line(map[string]any{"queue": s.Queue, "purged": n, "dry_run": dry},
				"%s %s of queue %s", verb(dry, "purge", "purged"), words.Count(n, "message"), s.Queue)
		}),
	}
	destructive(c, &yes, &dry)
	return c
}

// destructive adds the flags of every verb that cannot be undone.
func destructive(c *cobra.Command, yes, dry *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(dry, "dry-run", false, "only print what would be done")
}

func verb(dry bool, would, did string) string {
	if dry {
		return "would " + would
	}
	return did
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// textOr64 returns bytes as a string if they are text, else in base64. No bytes are an empty text.
func textOr64(b []byte) (*string, string) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}

func join(names []string) string { return strings.Join(names, ", ") }

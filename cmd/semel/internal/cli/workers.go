package cli

import (
	"context"
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

func (a *app) workersCommand() *cobra.Command {
	f := &recordFlags{}
	c := &cobra.Command{
		Use: "workers --store URL", Short: "List running workers: host, process, settings, the keys that they hold", Args: noArgs,
		Long: `workers lists the workers that report to the store: a worker does so a second after its start and then every ten seconds, and its
report goes when it stops. One that is killed stays for a day, as silent. Every store keeps reports (DynamoDB:
in a table with a sort key).

It warns of workers of one queue that differ in key, strategy, fingerprint, consumer, takeover or retention: a duplicate that another
worker gets can then take effect again.`,
		Example: "  semel workers --store 'sqlite:shop.db?queue=orders'",
		RunE: f.with(true, func(cmd *cobra.Command, l *ledger, _ []string) error {
			all, differ, err := ops.Workers(cmd.Context(), l.store, "")
			if errors.Is(err, driver.ErrUnsupported) {
				return output.Usage("%w", err).
					WithHint("DynamoDB keeps reports in a table with a sort key; semel top --queue URL --worker HOST:PORT asks the workers' --listen")
			}
			if err != nil {
				return err
			}
			for _, d := range differ {
				a.p.Notef("warning: %s", d)
			}
			head := []string{"worker", "queue", "consumer", "version", "started", "seen", "running", "state", "holds"}
			return output.List(a.p, all, head, func(w ops.Worker) []any {
				return []any{w.Name, w.Queue, w.Consumer, w.Version, rfc3339(w.Started), rfc3339(w.Seen), w.Running, workerState(w), holdsText(w)}
			})
		}),
	}
	c.Flags().StringVar(&f.store, "store", "", "URL of the record store (default: --queue)")
	c.Flags().StringVar(&f.queue, "queue", "", "URL of the queue, where its records are")
	return c
}

func workerState(w ops.Worker) string {
	switch {
	case w.Silent:
		return "silent"
	case w.Paused != "":
		return "paused: " + w.Paused
	}
	return "works"
}

// holdsText names the keys that have been held longest.
func holdsText(w ops.Worker) string {
	const shown = 3
	var parts []string
	for _, h := range w.Holds[:min(len(w.Holds), shown)] {
		parts = append(parts, fmt.Sprintf("%s (token %d, %s)", words.Printable(h.Key, 80), h.Token, words.About(time.Since(h.Since).Truncate(time.Second))))
	}
	if more := len(w.Holds) - shown; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// workers adds what is wrong with running workers: those that differ, are silent, or keep records for too short.
func (x *inspection) workers(ctx context.Context, store driver.Store) {
	all, differ, err := ops.Workers(ctx, store, x.q.Name)
	if err != nil && !errors.Is(err, driver.ErrUnsupported) {
		x.Add(ops.LevelWarning, "workers", "", "the reports of workers cannot be read: %v", err)
	}
	for _, c := range ops.LiveChecks(x.q, commands(x.w.StoreURL(), x.w.Queue, scope{}, x.w.Consumer), all, differ) {
		if c.Level != ops.LevelOK {
			x.Facts = append(x.Facts, c)
		}
	}
}

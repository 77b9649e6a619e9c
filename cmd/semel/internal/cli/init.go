package cli

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/scaffold"
	"github.com/semel-dev/semel/internal/words"
)

func (a *app) initCommand() *cobra.Command {
	o := scaffold.Options{}
	c := &cobra.Command{
		Use: "init [DIR]", Short: "Write the first files of a worker: settings, a handler, a test, a compose file",
		Long: `init writes semel.yaml (the settings, explained), a handler in the language of --lang, schema.sql (its table), test.sh (sends
duplicates to the handler and counts what happened), a Dockerfile and compose.yaml (the worker on PostgreSQL). DIR is the current
folder if it is not given. init never replaces a file: if one of these exists, it writes none.`,
		Example: `  semel init shop --lang python
  semel init shop --lang node --queue 'postgres://shop@db.example.org/shop?queue=orders'
  semel init --lang go --queue 'sqs://orders?region=eu-west-1' \
    --store 'postgres://shop@db.example.org/shop'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.Dir = "."; len(args) == 1 {
				o.Dir = args[0]
			}
			if strings.Contains(o.Dir, ":") { // it may have a password: it is not shown
				return output.Usage("init writes to a folder, and the argument is a URL or has a colon").WithHint("semel init DIR --queue URL")
			}
			return a.init(o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Language, "lang", "python", "language of the handler: "+strings.Join(scaffold.Languages(), ", "))
	fixed(f, "lang", scaffold.Languages()...)
	f.StringVar(&o.Queue, "queue", "sqlite:orders.db?queue=orders", "URL of the queue to consume")
	f.StringVar(&o.Store, "store", "", "URL of the record store: SQLite or PostgreSQL (default: the queue's)")
	for _, name := range []string{"queue", "store"} {
		_ = f.SetAnnotation(name, config.Own, []string{"init"}) // the flag exists
	}
	return c
}

func (a *app) init(o scaffold.Options) error {
	if err := choice("lang", o.Language, scaffold.Languages()); err != nil {
		return err
	}
	w := config.Default()
	w.Queue, w.Store, w.Exec, w.Effects, w.Key = o.Queue, o.Store, "true", "sql", "json:/order_id"
	if err := w.Check(); err != nil {
		return err
	}
	o.Store = w.StoreURL()
	if scheme, _, _ := strings.Cut(o.Store, ":"); !slices.Contains([]string{"sqlite", "postgres", "postgresql"}, scheme) {
		return output.Usage("--store %s://: init writes SQL for SQLite or PostgreSQL", scheme).
			WithHint("--store 'postgres://shop@db.example.org/shop'")
	}
	if hidden := w.Redact(); len(hidden) > 0 {
		return output.Usage("--%s has a password, and init would write it to a file", hidden[0]).
			WithHint("leave it away: PGPASSWORD, ~/.pgpass or SEMEL_OPT_%s has it when the worker runs", strings.ToUpper(hidden[0]))
	}
	files, err := scaffold.Write(o)
	if there := (*scaffold.ExistsError)(nil); errors.As(err, &there) {
		return output.Failed("%s: nothing was written", err).WithHint("semel init DIR, with a folder that has none of these files")
	}
	if err != nil {
		return output.Failed("%w", err)
	}
	quoted := func(path string) string { return strings.TrimPrefix(words.Command(path), "semel ") }
	next := []string{
		"sh " + quoted(filepath.Join(o.Dir, "test.sh")),
		"cd " + quoted(o.Dir) + " && semel migrate --config semel.yaml --sql schema.sql && semel work --config semel.yaml",
	}
	return a.p.Object(map[string]any{"files": files, "next": next}, func(b *strings.Builder) {
		for _, f := range files {
			b.WriteString("wrote " + f + "\n")
		}
		b.WriteString("next:\n")
		for _, n := range next {
			b.WriteString("  " + n + "\n")
		}
	})
}

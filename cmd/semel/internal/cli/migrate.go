package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

func (a *app) migrateCommand() *cobra.Command {
	var store string
	var show bool
	c := &cobra.Command{
		Use: "migrate --store URL [--print]", Short: "Create or upgrade the schema of a database", Args: noArgs,
		Example: "  semel migrate --store sqlite:shop.db\n  semel migrate --store sqlite:shop.db --print",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if show {
				if store != "" {
					if _, err := open.Parse("store", store); err != nil {
						return err
					}
				}
				sql := sqlite.SchemaSQL()
				return a.p.Object(map[string]string{"sql": sql}, func(w io.Writer) error {
					_, err := io.WriteString(w, sql)
					return err
				})
			}
			t, from, to, err := open.Migrate(cmd.Context(), store)
			if err != nil {
				return err
			}
			return a.p.Object(map[string]any{"database": t.Shown, "from": from, "to": to}, func(w io.Writer) error {
				var err error
				if from == to {
					_, err = fmt.Fprintf(w, "%s has schema %d: nothing to do\n", t.Shown, to)
				} else {
					_, err = fmt.Fprintf(w, "%s: schema %d to %d\n", t.Shown, from, to)
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&store, "store", "", "URL of the database")
	c.Flags().BoolVar(&show, "print", false, "only print the SQL of the schema")
	return c
}

package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func (a *app) migrateCommand() *cobra.Command {
	var store, file string
	var show bool
	c := &cobra.Command{
		Use: "migrate --store URL [--sql FILE | --print]", Short: "Create or upgrade the schema of a database", Args: noArgs,
		Long: `migrate creates semel's tables in a database, or upgrades those of an older semel. Running it again, or in several processes at
once, is safe. The first command that writes also creates SQLite files. PostgreSQL, MariaDB and MySQL need migrate, because workers
often have a role that must not create tables: docs/adapters.md lists its rights. For dynamodb:// migrate creates the table,
billed on demand, with its time to live. An existing table with the right keys stays as it is. Redis needs no schema.

--sql runs a file afterwards, on SQLite and PostgreSQL: the tables that your handlers write. It runs every time, so write
CREATE TABLE IF NOT EXISTS.`,
		Example: `  semel migrate --store sqlite:shop.db
  semel migrate --store postgres://owner@db.example.org/shop
  semel migrate --config semel.yaml --sql schema.sql
  semel migrate --store postgres:// --print
  semel migrate --store 'dynamodb://semel-records?region=eu-west-1'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !show {
				return a.migrate(cmd.Context(), store, file)
			}
			if file != "" {
				return output.Usage("--print and --sql exclude each other")
			}
			text, language, err := open.Schema(store)
			if err != nil {
				return err
			}
			var v any = text
			if language == "json" {
				v = json.RawMessage(text)
			}
			return a.p.Object(map[string]any{language: v}, func(b *strings.Builder) { b.WriteString(text) })
		},
	}
	c.Flags().StringVar(&store, "store", "", "URL of the database")
	c.Flags().StringVar(&file, "sql", "", "run this file of SQL afterwards, in one transaction")
	c.Flags().BoolVar(&show, "print", false, "only print what makes the schema in an empty database: SQL, or the requests to DynamoDB as JSON")
	return c
}

// migrate makes the schema of a store, then runs the SQL of a file, "" = none.
func (a *app) migrate(ctx context.Context, store, file string) error {
	var statements []byte
	if file != "" {
		var err error
		if statements, err = os.ReadFile(file); err != nil {
			return output.Usage("--sql: %w", err)
		}
	}
	t, from, to, err := open.Migrate(ctx, store)
	if err != nil {
		return err
	}
	if file != "" {
		if err := open.Execute(ctx, store, string(statements)); err != nil {
			return err
		}
	}
	v := map[string]any{"database": t.Shown, "from": from, "to": to}
	switch to {
	case 0:
		return a.p.Line(v, "%s needs no schema: nothing to create", t.Shown)
	case from:
		return a.p.Line(v, "%s has schema %d: nothing to do", t.Shown, to)
	}
	return a.p.Line(v, "%s: schema %d to %d", t.Shown, from, to)
}

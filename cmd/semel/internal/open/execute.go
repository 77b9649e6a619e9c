package open

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Execute runs the statements of a file on the database of a URL, in one transaction: the tables of the application. PostgreSQL
// refuses statements that cannot run in one.
func Execute(ctx context.Context, raw, statements string) error {
	t, err := Parse("store", raw)
	if err != nil {
		return err
	}
	switch t.kind {
	case sqliteKind:
		return executeSQLite(ctx, t, statements)
	case postgresKind:
		return executePostgres(ctx, t, statements)
	}
	return output.Usage("--sql: %s:// takes no SQL", t.Scheme).WithHint("--store 'sqlite:orders.db'")
}

func executeSQLite(ctx context.Context, t Target, statements string) (err error) {
	db, err := SQLite(ctx, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.SQL().BeginTx(ctx, nil)
	if err != nil {
		return unreachableFile(t, err)
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return errors.Join(output.Failed("--sql: %w", err), tx.Rollback())
	}
	return tx.Commit()
}

func executePostgres(ctx context.Context, t Target, statements string) error {
	cfg, err := pgxpool.ParseConfig(*t.conn) // a pool's, because the URL may have the parameters of one
	if err != nil {
		return output.Usage("--store %s: %w", t.Shown, err)
	}
	c, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return unreachableServer(t, err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	// Statements of one simple query are one transaction.
	if _, err := c.PgConn().Exec(ctx, statements).ReadAll(); err != nil {
		return output.Failed("--sql: %w", err)
	}
	return nil
}

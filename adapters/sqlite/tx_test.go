package sqlite

import (
	"context"
	"database/sql"

	"github.com/semel-dev/semel/driver"
)

// addTx writes an effect in an open transaction.
func addTx(ctx context.Context, x driver.Tx, id string) error {
	var tx *sql.Tx
	x.As(&tx)
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
	return err
}

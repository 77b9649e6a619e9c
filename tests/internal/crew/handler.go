package crew

import (
	"context"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
)

// sqlEffect is the effect: a row of the ledger.
//
//	$1 key  $2 token of the attempt  $3 process
const sqlEffect = `INSERT INTO ledger (key, token, worker) VALUES ($1, $2, $3)`

// sqlEffects is the effect of a batch in one statement.
//
//	$1 keys  $2 tokens of the attempts  $3 process
const sqlEffects = `INSERT INTO ledger (key, token, worker)
  SELECT key, token, $3 FROM unnest($1::bigint[], $2::bigint[]) AS effect (key, token)`

// handler makes what the mode asks for. The rows are the only effect: a second run shows as a second row.
func (t Task) handler() semel.Handler {
	pid := os.Getpid()
	switch t.Mode {
	case Open:
		return semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
			key, err := keyOf(a)
			if err != nil {
				return err
			}
			sleep(ctx, t.Work)
			_, err = tx.Exec(ctx, sqlEffect, key, int64(a.Token), pid)
			return err
		})
	case Batched:
		return semel.InTxBatch(func(ctx context.Context, e *semel.Statements, batch []*semel.Attempt) error {
			keys, tokens, err := columns(batch)
			if err != nil {
				return err
			}
			e.ExecRows(len(batch), sqlEffects, keys, tokens, pid)
			sleep(ctx, t.Work)
			return nil
		})
	case BatchedOpen:
		return semel.InTxBatch(func(ctx context.Context, tx pgx.Tx, batch []*semel.Attempt) error {
			keys, tokens, err := columns(batch)
			if err != nil {
				return err
			}
			sleep(ctx, t.Work)
			_, err = tx.Exec(ctx, sqlEffects, keys, tokens, pid)
			return err
		})
	}
	return semel.InTx(func(ctx context.Context, e *semel.Statements, a *semel.Attempt) error {
		key, err := keyOf(a)
		if err != nil {
			return err
		}
		e.ExecRows(1, sqlEffect, key, int64(a.Token), pid)
		sleep(ctx, t.Work)
		return nil
	})
}

func keyOf(a *semel.Attempt) (int64, error) {
	key, err := strconv.ParseInt(a.Key.Raw, 10, 64)
	if err != nil {
		return 0, semel.Permanent(err)
	}
	return key, nil
}

func columns(batch []*semel.Attempt) (keys, tokens []int64, err error) {
	for i, a := range batch {
		key, err := keyOf(a)
		if err != nil {
			return nil, nil, semel.ItemFailed(i, err)
		}
		keys, tokens = append(keys, key), append(tokens, int64(a.Token))
	}
	return keys, tokens, nil
}

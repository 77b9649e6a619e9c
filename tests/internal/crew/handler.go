package crew

import (
	"context"
	"database/sql"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// mysqlEffect is sqlEffect on MySQL.
const mysqlEffect = "INSERT INTO ledger (`key`, token, worker) VALUES (?, ?, ?)"

// handler makes what the mode asks for. The rows are the only effect: a second run shows as a second row.
func (t Task) handler(o *Opened) semel.Handler {
	effect := sqlEffect
	if o.mysql != nil {
		effect = mysqlEffect
	}
	switch t.Mode {
	case Outside:
		one := single(t, func(ctx context.Context, db *pgxpool.Pool, row ...any) error {
			_, err := db.Exec(ctx, effect, row...)
			return err
		})
		return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error { return one(ctx, o.postgres.Pool(), a) })
	case Open:
		if o.mysql != nil {
			return semel.InTx(single(t, func(ctx context.Context, tx *sql.Tx, row ...any) error {
				_, err := tx.ExecContext(ctx, effect, row...)
				return err
			}))
		}
		return semel.InTx(single(t, func(ctx context.Context, tx pgx.Tx, row ...any) error {
			_, err := tx.Exec(ctx, effect, row...)
			return err
		}))
	case Batched:
		return semel.InTxBatch(batch(t, func(_ context.Context, e *semel.Statements, n int, rows ...any) error {
			e.ExecRows(n, sqlEffects, rows...)
			return nil
		}))
	case BatchedOpen:
		return semel.InTxBatch(batch(t, func(ctx context.Context, tx pgx.Tx, _ int, rows ...any) error {
			_, err := tx.Exec(ctx, sqlEffects, rows...)
			return err
		}))
	}
	return semel.InTx(single(t, func(_ context.Context, e *semel.Statements, row ...any) error {
		e.ExecRows(1, effect, row...)
		return nil
	}))
}

// single is the work of one message on a transaction: the time that it takes, then the effect.
func single[T any](t Task, effect func(ctx context.Context, tx T, row ...any) error) func(context.Context, T, *semel.Attempt) error {
	return func(ctx context.Context, tx T, a *semel.Attempt) error {
		key, err := keyOf(a)
		if err != nil {
			return err
		}
		Sleep(ctx, t.Work)
		return effect(ctx, tx, key, int64(a.Token), os.Getpid())
	}
}

// batch is the work of a batch on a transaction.
func batch[T any](t Task, effect func(ctx context.Context, tx T, n int, rows ...any) error) func(context.Context, T, []*semel.Attempt) error {
	return func(ctx context.Context, tx T, batch []*semel.Attempt) error {
		keys, tokens, err := columns(batch)
		if err != nil {
			return err
		}
		Sleep(ctx, t.Work)
		return effect(ctx, tx, len(batch), keys, tokens, os.Getpid())
	}
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

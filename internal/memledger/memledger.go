// Package memledger is the ledger of the conformance suites in the memory store: every package that runs them on it uses it.
package memledger

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// Of keeps effects in the store's own tables, where they commit with its records.
func Of(store *memory.Store) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var e *memory.Effects
			c.Offers(&e)
			return e
		},
		Add:    func(e any, id string) { e.(*memory.Effects).Append("ledger", id) },
		Refuse: func(e any) { e.(*memory.Effects).Refuse(memory.ErrExists) },
		Transient: func(e any) {
			e.(*memory.Effects).Refuse(fmt.Errorf("%w: internal error", driver.ErrNotCommitted))
		},
		AddTx: func(_ context.Context, tx driver.Tx, id string) error {
			var x *memory.Tx
			tx.As(&x)
			return x.Append("ledger", id)
		},
		Rows: &semeltest.LedgerRows{
			Add:    func(e any, id string) { e.(*memory.Effects).Append("ledger", id) },
			Parent: func(e any, id string) { e.(*memory.Effects).Insert("parent", id, "") },
			Child:  func(e any, id, parent string) { e.(*memory.Effects).Insert("child", id, parent) },
		},
		Count: func(_ context.Context, id string) (n int, err error) {
			for _, r := range store.Tables().Rows("ledger") {
				if r.Value == id {
					n++
				}
			}
			return n, nil
		},
	}
}

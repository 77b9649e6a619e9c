package driver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// claimLog is a store that logs claims. It works before any store: driver.As finds its Begin only where the store has one.
type claimLog struct {
	driver.Store
	transactor driver.Transactor // nil where the store has none
}

func newClaimLog(s driver.Store) driver.Store {
	l := &claimLog{Store: s}
	l.transactor, _ = driver.As[driver.Transactor](s) // once, not for each message
	return l
}

var (
	_ driver.Wrapper    = (*claimLog)(nil)
	_ driver.Passer     = (*claimLog)(nil)
	_ driver.Transactor = (*claimLog)(nil)
)

// Unwrap makes claimLog a wrapper: interfaces that only read, such as RecordInspector, are found behind it.
func (l *claimLog) Unwrap() any { return l.Store }

// Passes lists what writes and claims nothing. What is not listed is hidden, such as Sweeper.
func (l *claimLog) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Committer]()}
}

func (l *claimLog) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	grants, err := l.Store.Claim(ctx, c...)
	logClaims("claim", c, grants)
	return grants, err
}

// Begin claims as well. Without this method transactions would not be found behind claimLog.
func (l *claimLog) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	tx, grants, err := l.transactor.Begin(ctx, c...)
	logClaims("begin", c, grants)
	return tx, grants, err
}

func (l *claimLog) OffersTx(handle any) bool { return l.transactor.OffersTx(handle) }

func logClaims(call string, c []driver.Claim, grants []driver.Grant) {
	for i := range grants {
		fmt.Printf("%s %s: %s\n", call, c[i].Key.Raw, grants[i].Verdict)
	}
}

// A wrapper of a store: it logs claims, hides what it does not know, and lets the rest through.
func ExampleWrapper() {
	ctx := context.Background()
	store := newClaimLog(memory.NewStore())

	order := driver.Claim{Key: driver.Key{Consumer: "orders", Raw: "order-1"}, Nonce: driver.Nonce{1}, Lease: time.Minute}
	if _, err := store.Claim(ctx, order); err != nil {
		fmt.Println(err)
	}
	if t, ok := driver.As[driver.Transactor](store); ok {
		order.Key.Raw, order.Nonce = "order-2", driver.Nonce{2}
		tx, _, err := t.Begin(ctx, order)
		if err == nil {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	_, inspects := driver.As[driver.RecordInspector](store)
	_, commits := driver.As[driver.Committer](store)
	_, sweeps := driver.As[driver.Sweeper](store)
	fmt.Println("inspects:", inspects, "commits:", commits, "sweeps:", sweeps)

	_, opens := driver.As[driver.Transactor](newClaimLog(struct{ driver.Store }{memory.NewStore()}))
	fmt.Println("before a store without transactions:", opens)

	// Output:
	// claim order-1: acquired
	// begin order-2: acquired
	// inspects: true commits: true sweeps: false
	// before a store without transactions: false
}

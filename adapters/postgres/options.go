package postgres

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver/rowstore"
)

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// ReadOnly opens for inspection, also on a standby: every write returns an error. Defaults to false.
	ReadOnly bool
	// Create makes semel's tables in a database that has none. Defaults to false: Open returns a *[SchemaError], because
	// programs often run with a role that must not create tables.
	Create bool
	// Visibility is how long Receive keeps a message from others. Defaults to 30 s.
	Visibility time.Duration
	// MaxConns bounds the pool. Defaults to pool_max_conns of the URL, else 16. A consumer uses two connections for each
	// committer (Config.Committers), and up to four more: six by default. Outside of the pool a process has one that
	// listens for notifications (unless NoListen), and briefly one more when a handler emits to a new queue: at most
	// MaxConns + 2. With a pool that is too small, calls wait.
	MaxConns int
	// Configure changes the configuration of the pool before it is made: credentials that rotate (BeforeConnect), dialers,
	// tracers, hooks. Defaults to none. A program that has a pool uses [OpenPool].
	Configure func(*pgxpool.Config)
	// PollInterval is how often a blocked Receive looks without a notification. Defaults to 200 ms. Without notifications
	// (behind a pooler in transaction mode) it is a tenth of that at first.
	PollInterval time.Duration
	// NoListen disables LISTEN and NOTIFY, for poolers in transaction mode. Defaults to false.
	NoListen bool
	// LockWait is how long a claim waits for a record that another transaction holds before it returns Busy, and how long a
	// handler's statement waits for a lock before its message is deferred. Defaults to 1 s.
	LockWait time.Duration
	// MaxTx bounds a synchronous transaction (modes B and C): the server ends one that is idle for longer, so that a frozen
	// worker does not keep its keys locked. Defaults to 30 s.
	MaxTx time.Duration
	// ReceiveBytes bounds the bodies of one Receive, which always returns at least one message. Defaults to 64 MiB.
	ReceiveBytes int64
}

func (o Options) withDefaults() (Options, error) {
	err := rowstore.SetDefaults("postgres",
		rowstore.Default{Name: "Visibility", Value: &o.Visibility, Default: 30 * time.Second},
		rowstore.Default{Name: "PollInterval", Value: &o.PollInterval, Default: 200 * time.Millisecond},
		rowstore.Default{Name: "LockWait", Value: &o.LockWait, Default: time.Second},
		rowstore.Default{Name: "MaxTx", Value: &o.MaxTx, Default: 30 * time.Second})
	if err != nil {
		return o, err
	}
	if o.MaxConns < 0 || o.ReceiveBytes < 0 {
		return o, fmt.Errorf("postgres: Options.MaxConns and ReceiveBytes must not be negative")
	}
	o.ReceiveBytes = cmp.Or(o.ReceiveBytes, 64<<20)
	return o, nil
}

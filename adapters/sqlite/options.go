package sqlite

import (
	"cmp"
	"fmt"
	"time"
)

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Create makes the file, and semel's tables in a file that has none. Defaults to false: Open returns a *[SchemaError], so
	// that a slip in the path does not become another database.
	Create bool
	// ReadOnly opens for inspection: every write answers an error. The file must exist. Defaults to false.
	ReadOnly bool
	// Visibility is how long Receive keeps a message from others. Defaults to 30 s.
	Visibility time.Duration
	// BusyTimeout is how long a write waits for the lock that another process holds, before it answers
	// driver.ErrNotCommitted. On a machine so busy that this process hardly gets to run it waits longer, up to ten
	// times, until it made a fiftieth of the attempts that it makes otherwise. Defaults to 10 s.
	BusyTimeout time.Duration
	// PollInterval is how often a blocked Receive looks whether another process wrote; nobody waiting, nobody looks.
	// Defaults to 3 ms.
	PollInterval time.Duration
	// MaxTx bounds a synchronous transaction, and the statements of handlers in one commit: they hold the only write lock, and
	// heartbeats of other processes wait for
	// it. A transaction that is open for longer is rolled back. Defaults to 3 s.
	MaxTx time.Duration
	// ReceiveBytes bounds the bodies of one Receive; it always answers at least one message. Defaults to 64 MiB.
	ReceiveBytes int64
	// CacheBytes is the page cache of the writing connection. Defaults to 16 MiB: the operating system caches the rest, and
	// SQLite walks over the whole cache in many commits.
	CacheBytes int64
	// Checkpoint is the length of the write-ahead log, in pages, from which a goroutine carries it over into the database.
	// What is written meanwhile is appended: at twice this length a commit does it itself, and waits for it. Defaults to
	// 20,000 (80 MB), the least that keeps batched writes fast.
	Checkpoint int

	clock  func() time.Time // tests; defaults to time.Now
	modeOf string           // a file whose mode a new database gets
}

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Visibility", &o.Visibility, 30 * time.Second},
		{"BusyTimeout", &o.BusyTimeout, 10 * time.Second},
		{"PollInterval", &o.PollInterval, 3 * time.Millisecond},
		{"MaxTx", &o.MaxTx, 3 * time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("sqlite: Options.%s is %v, must not be negative", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.def)
	}
	if o.ReceiveBytes < 0 || o.CacheBytes < 0 || o.Checkpoint < 0 {
		return o, fmt.Errorf("sqlite: Options.ReceiveBytes, CacheBytes and Checkpoint must not be negative")
	}
	o.ReceiveBytes = cmp.Or(o.ReceiveBytes, 64<<20)
	o.CacheBytes = cmp.Or(o.CacheBytes, 16<<20)
	if o.clock == nil {
		o.clock = time.Now
	}
	o.Checkpoint = cmp.Or(o.Checkpoint, 20000)
	return o, nil
}

// Package sqlite keeps semel's queues and records in one SQLite file: the embedded default, with no server. Several
// processes may share the file.
//
//	db, err := sqlite.Open(ctx, "shop.db", sqlite.Options{Create: true})
//	...
//	queue, store := db.Queue("orders"), db.Store()
//
// Queue and store of one [DB] are one database: the effects that a handler collects ([driver.Statements]), the record,
// the messages that it emits and the acknowledgement commit in one transaction (protocol section 3, mode A2).
//
// # Writing
//
// SQLite has one writer at a time. One goroutine per process writes: while it commits, further requests gather, and
// the next transaction takes all of them (group commit, one fsync for many callers). An idle database adds no delay,
// and there is no timer. The transactions are BEGIN IMMEDIATE in WAL mode with synchronous=FULL: a confirmed write survives
// the loss of power if the disk honors fsync.
//
// A synchronous transaction ([driver.Transactor], handlers that take a *sql.Tx) holds the only write lock while the
// handler runs; heartbeats of other processes wait meanwhile. It is bounded by [Options.MaxTx], and the collected
// effects of mode A2 are the better choice here.
//
// # Tables
//
// The tables are named semel_* and documented in schema/*.sql (see [SchemaSQL]); they and the views semel_records,
// semel_messages, semel_dead_letters, semel_steps, semel_audits and semel_duplicates may be read by anybody. In tables, times are
// microseconds since 1970 in UTC. The application's own tables belong in the same file: that is what makes effects and record
// one transaction.
//
// A transaction of a reader that stays open keeps the write-ahead log from being reset, and the log grows meanwhile: read
// in short transactions.
//
// The clock of the host decides expiry (protocol law 7): processes that share a file share a host. The file must be on
// a local disk, as SQLite demands of WAL mode.
package sqlite

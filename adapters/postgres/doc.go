// Package postgres keeps semel's queues and records in a PostgreSQL database, for many worker processes on many hosts.
// PostgreSQL 14 and newer.
//
//	db, err := postgres.Open(ctx, "postgres://shop@localhost/shop", postgres.Options{})
//	...
//	queue, store := db.Queue("orders"), db.Store()
//
// Queue and store of one [DB] are one database: the effects that a handler collects ([driver.Statements]), the record,
// the messages that it emits and the acknowledgement commit in one transaction (protocol section 3, mode A2). Handlers
// that run their own SQL take a pgx.Tx or *sql.Tx (modes B and C).
//
// Queued statements use PostgreSQL's placeholders, $1 and so on, which SQLite understands too; one statement each. A
// handler's transaction is lent: its Commit and Rollback are refused, savepoints work. In a batch, SET CONSTRAINTS must
// name its constraints, because a deferred one of semel's own refuses other commits.
//
// If a program holds a transaction of its own, it can put the record into it: [Store.SeenTx] is an inbox in one call,
// [Store.ClaimTx] and [Store.FinishTx] are its parts.
package postgres

// Package mysql keeps semel's queues and records in a database of MariaDB (10.6 or newer) or MySQL (8.0.1 or newer).
//
//	db, err := mysql.Open(ctx, "mysql://app:secret@db.example.com:3306/shop?tls=true", mysql.Options{})
//	...
//	queue, store := db.Queue("orders"), db.Store()
//
// [Migrate] makes the tables, or [Options.Create]. Queue and store of one [DB] are one database: the effects that a handler
// collects ([driver.Statements]), the record, the messages that it emits and the acknowledgement commit in one transaction
// (protocol section 3, mode A2). A handler may also take the open transaction, as *sql.Tx (modes B and C).
//
// # Transactions
//
// All transactions run at READ COMMITTED and lock records in the order of their keys. A deadlock is repeated here and is never
// the failure of a message. A record that another session has locked is waited for ([Options.LockWait]), and is then busy.
// Connections have settings of their own: strict SQL mode, UTC, short waits for locks.
//
// # Effects
//
// Collected effects are INSERT, UPDATE, DELETE, REPLACE and SELECT. Statements that commit implicitly, as all DDL does, are
// refused before anything is written, and so are semel's own tables. In an open transaction such a statement ends the
// transaction: Commit then returns an error, and what the handler wrote behind it is rolled back.
// Tables must be of an engine with transactions (InnoDB).
//
// # Time
//
// The server's clock decides expiry (protocol law 7). Tokens follow it too, and never go back when it does.
package mysql

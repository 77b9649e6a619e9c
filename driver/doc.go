// Package driver is the contract between semel's engine and its adapters: the types that both use (messages, deliveries,
// claims, grants, records, dead letters), the interfaces that a queue and a store implement, and the decision table that
// every store implements.
//
// Programs that consume messages use package semel. This package is for authors of adapters and tools, as
// database/sql/driver is for authors of SQL drivers. Package semel has aliases for the most used types.
//
// # The table
//
// [DecideClaim], [DecideExtend], [DecideFinish], [DecideOperate] and [DecideSweep] are pure functions over one [Record].
// They define the correct result of every operation. An adapter may call them inside its own transaction (memory, SQLite)
// or express them in its own language (SQL, Lua, condition expressions). Package semeltest compares the two cell by cell.
//
// # Optional interfaces and wrappers
//
// A [Store] and a [Queue] have four methods. Everything else is an optional interface, which [As] finds, also behind a
// [Wrapper]. Its rules make sure that no write bypasses a wrapper.
//
// # Three values, never a bool
//
// Every write returns an [Outcome] per item: Applied, Lost or Unknown. A write without a response is Unknown. The only legal
// next step is the same write with the same token and nonce.
package driver

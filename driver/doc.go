// Package driver is the contract between semel's engine and its adapters: the nouns that cross the seam (messages,
// deliveries, claims, grants, records, dead letters), the interfaces that a queue and a store implement, and the decision
// table that every store must realise.
//
// Programs that consume messages use package semel; this package is for the authors of adapters and of tools, in the
// way that database/sql/driver is for the authors of SQL drivers. The most used nouns have aliases in package semel.
//
// # The table
//
// [DecideClaim], [DecideExtend], [DecideFinish], [DecideOperate] and [DecideSweep] are pure functions over one
// [Record]: they are the law, and an adapter is correct when it answers as they do. An adapter may call them inside
// its own transaction (memory, SQLite) or express them in its own language (SQL, Lua, condition expressions); package
// semeltest compares the two cell by cell.
//
// # Optional interfaces and wrappers
//
// A [Store] and a [Queue] have four methods. Everything else is an optional interface, which [As] finds: also behind a
// [Wrapper], by a rule that lets no write get past it.
//
// # Three values, never a bool
//
// Every write is answered per item with an [Outcome]: Applied, Lost or Unknown. An unanswered write is Unknown, and
// the only legal next act is the same write with the same token and nonce.
package driver

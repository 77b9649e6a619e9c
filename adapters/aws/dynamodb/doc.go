// Package dynamodb is a record store on Amazon DynamoDB.
//
//	store, err := dynamodb.Open(ctx, awsdynamodb.NewFromConfig(cfg), "semel", dynamodb.Options{})
//
// Every record is one item, and every change of it is one conditional write: the decision table decides on the item as it
// was last seen, and the write succeeds only if the item has not changed. A failed condition returns the current item, so a
// duplicate costs one failed write and no read. A new message costs two writes, one to claim and one to complete.
//
// # Effects
//
// If a handler collects [Writes], the store writes them in the transaction that completes the record (mode A2, exactly
// once), in one TransactWriteItems for as many messages as fit:
//
//	semel.InTx(func(ctx context.Context, w *dynamodb.Writes, a *semel.Attempt) error {
//		w.Add("balances", map[string]types.AttributeValue{"id": ...}, "amount", 100)
//		return nil
//	})
//
// DynamoDB checks the conditions of these writes. If one fails, the attempt fails ([RefusedError]) and nothing is written.
// Effects on other services, and calls that the handler makes itself, happen at least once (mode A).
//
// # Clocks and tokens
//
// DynamoDB has no clock that a condition could use. The lease of another worker has ended Options.MaxClockSkew after its end
// by our own clock, or with Options.Observe when its record was seen unchanged for the whole lease. Safety depends on
// neither: a worker that lost its key is fenced, because every write compares revision, token and nonce. Clocks only decide
// how often a live run is taken for dead.
//
// Tokens grow forever, even after their record is gone: they start at the microseconds of the clock, a sweep raises a stored
// floor before it removes anything, and Open reads it. When DynamoDB itself deletes records (time to live), the floor is not
// raised. Then tokens keep growing as long as no clock is behind the time at which the deleted record was claimed, which was
// at least its retention and Options.TTLSlack ago. A worker from that time that still runs is fenced by its nonce in any
// case. Only an outside resource that compares nothing but the token depends on the clocks.
//
// # Time to live
//
// Records with a retention carry its end in the attribute ttl, so that DynamoDB deletes them at no cost within days after
// it. Records in progress or uncertain have none. If an item still exists after that time, only the times in the record
// count.
//
// # Limits
//
// An item takes 400 KB: the result (at most 256 KB), the journal of durable steps and the audit log together. A larger item
// is refused and fails the attempt, so it is not retried forever. All keys of a consumer may be claimed at once, with
// Options.Parallel requests at a time. The store switches the SDK's retries off, and itself repeats requests that were
// throttled, conflicted with a transaction or got no response.
//
// # Existing tables
//
// [Layout] describes a table with other keys and with items of an older program. semel touches no attribute that it did not
// write, and Layout.Adopt maps the old statuses to states. Old and new programs must not run at the same time: the old ones
// obey no lease.
//
// Options.Gate adds a second table with a row for each completed key (the two-table pattern: one table for states, and one
// for completed keys, shared by all consumers). The row is written in the transaction that completes the record, on the
// condition that it does not exist yet. If it exists, nothing of that transaction is written, the record is completed
// without this run's effects, and duplicates replay. A message then costs five write units instead of two. A single table
// gives the same guarantee to each consumer. The gate is for several consumers that do one job, or for records that somebody
// might delete. It stops only effects of mode A2: other effects of a handler have already happened by then.
package dynamodb

// Package dynamodb is a record store on Amazon DynamoDB.
//
//	store, err := dynamodb.Open(ctx, awsdynamodb.NewFromConfig(cfg), "semel", dynamodb.Options{})
//
// Every record is one item, and every change of it is one conditional write: the decision table decides on the item as it
// was last seen, and the write goes through only when the item is still that one. A condition that fails returns the item as
// it is, so a duplicate costs one failed write and no read; a new message costs two writes, one to claim and one to complete.
//
// # Effects
//
// A handler that collects [Writes] has them written in the transaction that completes its record (mode A2, exactly once), one
// TransactWriteItems for as many messages as fit:
//
//	semel.InTx(func(ctx context.Context, w *dynamodb.Writes, a *semel.Attempt) error {
//		w.Add("balances", map[string]types.AttributeValue{"id": ...}, "amount", 100)
//		return nil
//	})
//
// Conditions in them are checked by the service; one that fails fails the attempt ([RefusedError]) and writes nothing. What a
// handler does to other services, or by calls of its own, is at least once (mode A).
//
// # Clocks and tokens
//
// DynamoDB has no clock that a condition could ask. A lease of another worker is over Options.MaxClockSkew after its end by our
// own clock, or with Options.Observe when its record was seen unchanged for the whole lease. Safety hangs on neither: who
// lost a key is fenced, because every write compares revision, token and nonce. Clocks only decide how often a run is taken for
// dead that is not.
//
// Tokens grow forever, also after their record is gone: they start at the microseconds of the clock, a sweep raises a stored
// floor before it removes anything, and Open reads it. When DynamoDB itself deletes records (time to live) nobody raises the
// floor. Then tokens go on growing as long as no clock is behind the time at which the deleted record was claimed, which is
// its retention and Options.TTLSlack ago at least; and a worker of that time which still runs is fenced by its nonce in any
// case. Only a resource outside that compares nothing but the token depends on it.
//
// # Time to live
//
// Records that are past their retention carry the attribute ttl, so that DynamoDB deletes them at no cost within days; those
// that are in progress or uncertain have none. An item that is still there after its time is judged by the times in the
// record, and by nothing else.
//
// # Limits
//
// An item takes 400 KB: the result (256 KB at most), the journal of durable steps and the operators' trail together. What
// passes that is refused and fails the attempt; it is not tried forever. All keys of a consumer may be claimed at once,
// Options.Parallel requests at a time. The client's own repetitions are switched off for the requests of a store, which
// repeats itself what was throttled, met a transaction or got no answer.
//
// # Tables that were there before
//
// [Layout] describes a table with other keys and items of a program before semel: semel touches no attribute that it did not
// write, and Layout.Adopt says what the old statuses mean. Old and new programs must not run at the same time: the old ones
// obey no lease.
//
// Options.Gate adds a second table with a row for each completed key (the two-table pattern: one table of states, and one
// that says what is done, for all consumers). The row is written in the transaction that completes the record, on the condition
// that it is not there: when it is, nothing of that transaction is written, the record is completed without this run's
// effects, and duplicates replay. It costs five write units for a message instead of two. A single table gives the same
// guarantee to each consumer; the gate is for several consumers that do one job, or for records that somebody might delete.
// It stops effects of mode A2 only: a handler with other effects has had them by then.
package dynamodb

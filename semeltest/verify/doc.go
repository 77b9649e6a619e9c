// Package verify tests handlers: it runs a handler under every bad schedule, and reports which effect happened twice or
// was lost, which schedule shows it, why, and how to fix it. It needs only the standard library, and no clock: a
// schedule takes milliseconds.
//
//	func TestCharge(t *testing.T) {
//		verify.Handler(t, verify.Options{
//			Messages: []semel.Message{{Body: []byte(`{"order":1,"amount":5}`)}},
//			Worker: func(p *verify.Process) semel.Config {
//				return shop.Consumer(p.Client(fakeBank)) // the program's own Config, on a client that records
//			},
//		})
//	}
//
// # Effects
//
// The handler's effects go through the [Process]: HTTP through [Process.Client] or [Process.Transport], SQL through
// [Process.DB] or [Process.Connect], anything else through [Process.Effect]. Statements that are queued with
// *semel.Statements, and emitted messages, are recorded when they commit with the record, in memory or in a database.
// Effects that go through none of these, such as SQL in a *sql.Tx of InTx, are compared by [Options.State].
//
// # Schedules
//
// Three plain runs find the effects, and whether they are the same every time. Then, for every effect: the process dies
// before or after it, its response is lost or late, it fails, the lease is lost right before it, the process stalls
// right before it, a duplicate with another message id arrives at that moment. And for the message: deaths around the
// run, the completion and the ack, a run that fails when everything is done, duplicates before and after. [Kind] lists
// them. A process that dies loses its memory: [Options.Worker] makes the next one from scratch.
//
// The engine is the real one ([semel.Consumer], or [semel.Do] by [Options.Serve]), on queues and records in memory or
// on the program's own adapters. Time does not pass: leases and visibilities end by extending them to the present,
// which every adapter can, and backoffs are left out. A handler that sleeps does sleep.
//
// While a handler holds a transaction of the store open (InTx with *sql.Tx or pgx.Tx, InTxBatch), nobody can take over
// from it, so schedules with two concurrent runs are left out. InTxBatch has no run of one message: the end of its
// context and the late failure are left out. The batch is one message.
//
// # Judgement
//
// Effects have names: method and URL without the query, the SQL, or the name given to Effect. Every schedule must do as
// many effects of a name as the plain run: one for each key, since the other side deduplicates, and one for each effect
// without a key. So the key has to be the same in every attempt, and a different one for every step and every message.
// Give two messages to test the latter. Statements have no key: without a state, a statement that changed rows again
// happened twice. An effect that was refused (an HTTP status from 300, an error, no row changed) has not happened. An
// effect is lost if it is missing when the record is completed. A message that became a dead letter is not lost, because
// a person sees it.
//
// A passing report covers its samples only: branches that they do not take are not tested.
//
// # Programs and endpoints
//
// Handlers in other languages need real processes: semel lab attack starts and kills those, and has a [Judge] compare what
// they did. A harness of your own can do the same.
package verify

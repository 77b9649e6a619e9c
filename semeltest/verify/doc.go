// Package verify proves handlers: it runs a handler under every bad schedule, and says which effect happened twice or
// was lost, which schedule shows it, why, and how to fix it. It needs the standard library only, and no clock: a
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
// What the handler does to the world goes through the [Process]: HTTP through [Process.Client] or [Process.Transport],
// SQL through [Process.DB] or [Process.Connect], anything else through [Process.Effect]. What is queued with
// *semel.Statements or emitted is seen as it commits with the record, on the records in memory as on a database. What
// goes through nothing of these, such as SQL in a *sql.Tx of InTx, is compared by [Options.State].
//
// # Schedules
//
// Three plain runs tell the effects, and whether they are the same every time. Then, for every effect: the process dies
// before or after it, its answer is lost, or late, it fails, the lease is lost right before it, the process stands
// still right before it, a duplicate with another message id comes at that moment. And for the message: deaths around
// the run, the completion and the ack, a run that fails when all is done, duplicates before and after. [Kind] lists
// them. A process that dies loses its memory: the next one is made by [Options.Worker] anew.
//
// The engine is the real one ([semel.Consumer], or [semel.Do] by [Options.Serve]), on queues and records in memory or
// on the program's own adapters. Time does not pass: leases and visibilities end by extending them to the present,
// which every adapter can, and backoffs are left out. A handler that sleeps does sleep.
//
// While a handler holds a transaction of the store open (InTx with *sql.Tx or pgx.Tx, InTxBatch), nobody can take over
// from it: schedules in which a run goes on beside another are left out for it. InTxBatch has no run of one message:
// the end of its context and the late failure are left out. The batch is one message.
//
// # Judgement
//
// Effects have names: method and URL without the query, the SQL, what Effect was told. Of one name there must be as
// many as in the plain run: one for each key, since the other side deduplicates, and one for each effect without a key.
// So the key has to be the same in every attempt, and another for every step and every message; give two messages to
// see the latter. Statements have no key: without a state, one that changed rows again happened twice. What was refused
// (an HTTP status from 300, an error, no row changed) has not happened. Lost is what is missing when the record is
// completed; a message that became a dead letter is not lost, because a person sees it.
//
// A passing report is no proof beyond its samples: branches that they do not take are not seen.
package verify

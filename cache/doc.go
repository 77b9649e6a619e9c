// Package cache has hints that stand in front of a record store: a cache that answers duplicates of completed keys from
// memory, and a filter that remembers which keys were certainly never seen. Neither decides anything (protocol, law 9).
//
// # The cache
//
// [New] puts a cache before any driver.Store. A claim that it may answer costs no call:
//
//	store = cache.New(store, cache.Options{Size: 1000})
//
// # The law
//
// A cache answers a claim with Replay or Stale, and never with anything else: it says neither "new" nor "busy" nor "failed".
// It does so only when all of this holds.
//
//  1. The store itself said so of this key, to this process: it answered a claim with Replay or Stale, or Applied to the
//     completion of an attempt that it had granted to this process. Lost, Recovered and Unknown are never kept.
//  2. It said so at most MaxAge ago, counted from before the call. Hits do not make an entry younger. What this process
//     completed is not answered any more when the record's retention may be over.
//  3. The version is the same. Who was applied or overtaken stays so: a greater version that is applied meanwhile turns
//     Replay into Stale, and both are acked.
//  4. The fingerprint is the same, byte by byte. Whether another one is a mismatch is the store's to say.
//  5. The claim is not that of the very attempt that completed: who asks under its own nonce has lost an answer.
//  6. The delivery ended at this answer before: its id is known here. A claim without a delivery (semel.Do) needs none. With
//     Options.Strangers ids that are not known are answered too, which is what producers send twice.
//  7. The message was not sent again from a dead letter (driver.IsRedrive), whatever its id: just before, a person may have
//     reopened the record, even a completed one.
//  8. Nothing that this process did or heard of since speaks against it: a grant of the key, another verdict, an operator's
//     act, a purge, a newer token. An answer that was under way meanwhile is not kept.
//  9. The store answered its latest call. In an outage claims go through, so that the engine finds out when it ends.
//  10. The history of the store is the same (driver.Historian). A server that failed over, was restored or was only started
//     anew may have lost what it confirmed: everything is forgotten.
//
// # Why that is safe
//
// COMPLETED is immutable for one generation (invariant I9). Three things end it without this process: a person reruns the
// key (a new generation), retention ends and the record expires or is purged, the store loses data. The last is 10. By 6 a delivery is answered that
// was settled before, or should have been: running it again would be wrong however the record looks now. What a person sends
// to be run again is another message, and by 7 always asks the store. So no message is lost, and no field of an answer
// differs from the store's at the moment when it was given.
//
// Strangers gives up two things. A copy under a new id may be called a producer's duplicate that the record would have known
// as a redelivery. And a message that is meant to be new may come within MaxAge of the last duplicate of a record that was
// purged or rerun meanwhile by another process, with the same payload, under an id that no dead letter made: it is taken for a
// duplicate. Who reopens completed keys by other means than dead letters and sends their messages under ids of their own waits
// for MaxAge, or leaves Strangers off.
//
// A call of semel.Do has no delivery. One that comes within MaxAge after another process reopened its completed key gets the
// old result, and the next one runs.
//
// A process learns that the history changed with its next connection to the server, and with what it receives from a queue
// there, before that is handled. With a queue elsewhere, a process that has no call of the store in between can call a copy
// done that would have to run again, for at most MaxAge.
//
// # What is kept
//
// The entries that were used last. Entries and bytes are both bounded.
//
// Several deliveries of one key that are in one process at once never reach the cache together: the engine lets twins wait
// for each other, and answers those that waited itself.
//
// # The filter
//
// [Filter] says of a hash "certainly not added" or "perhaps". It saves the read of a second, larger memory of keys (records
// that were moved out of the store): with 1 % false positives 99 of 100 new keys need no read. The claim of a store
// itself saves nothing by it, because a claim writes in the same step as it reads; so New has none. A filter that does not reach
// back far enough answers "perhaps" to everything: it costs reads and changes no outcome.
package cache

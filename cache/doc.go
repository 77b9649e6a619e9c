// Package cache has two hints in front of a record store: a cache that decides claims of completed keys from memory, and a
// filter that remembers which keys were certainly not seen. Neither is an authority (protocol, law 9).
//
// # The cache
//
// [New] puts a cache in front of any driver.Store. A claim that hits the cache needs no call of the store:
//
//	store = cache.New(store, cache.Options{Size: 1000})
//
// # The law
//
// The cache only returns the verdicts Replay and Stale. It does so if all of these hold:
//
//  1. The verdict comes from the store, for this key and this process: the store returned Replay or Stale for a claim, or
//     Applied for the completion of an attempt that it had granted to this process. Lost, Recovered and Unknown are not kept.
//  2. The verdict is at most MaxAge old, counted from before the call. Hits do not extend that. For a key that this process
//     completed, it also ends when the record's retention may have ended.
//  3. The version is the same. A version that was applied or superseded stays so: a greater version that is applied in the
//     meantime turns Replay into Stale, and both are acked.
//  4. The fingerprint is the same, byte by byte. Only the store decides whether another one is a mismatch.
//  5. The claim is not that of the attempt which completed the key. Such a claim repeats one whose response was lost.
//  6. The delivery ended with this verdict before: its ID is known here. A claim without a delivery (semel.Do) needs none.
//     With Options.Strangers unknown IDs hit too: messages that producers sent twice.
//  7. The message was not redriven from a dead letter (driver.IsRedrive): a person may just have reopened the record, even a
//     completed one.
//  8. This process has not seen anything newer: a grant of the key, another verdict, an operation of an operator, a purge, a
//     greater token. The response to a call that was in flight at that moment is not kept.
//  9. The store responded to its latest call. In an outage claims reach the store, so that the engine notices its end.
//  10. The history of the store is the same (driver.Historian). A server that failed over, was restored or was just restarted
//     may have lost confirmed writes, so everything is forgotten.
//
// # Why that is safe
//
// COMPLETED is immutable for one generation (invariant I9). It can end without this process in three ways: a person reruns
// the key (a new generation), its retention ends and the record expires or is purged, or the store loses data. Rule 10 covers
// the last. By rule 6 a hit is a delivery that was settled before, or should have been: running it again would be wrong,
// whatever the record is now. A message that a person sends to run again is another message, and by rule 7 always reaches the
// store. So no message is lost, and every field of a hit equals that of the store at the moment of its verdict.
//
// Strangers has two costs. A copy under a new ID may be counted as a producer duplicate although the record knows it as a
// redelivery. And a message that is meant to be new may be taken for a duplicate. For that it must arrive within MaxAge of the
// last duplicate of a record that another process has purged or rerun, with the same payload, under an ID that was not made
// from a dead letter. If you reopen completed keys other than by dead letters and send their messages under your own IDs, wait
// for MaxAge first, or leave Strangers off.
//
// A call of semel.Do has no delivery. If it comes within MaxAge after another process reopened its completed key, it returns
// the old result, and the next call runs.
//
// A process learns that the history changed with its next connection to the server, and before it handles messages that it
// receives from a queue there. With a queue elsewhere, and no call of the store in between, a process can treat a copy as
// completed that should run again, for at most MaxAge.
//
// # Limits
//
// The cache keeps the most recently used entries. Their number and their bytes are both limited.
//
// Several deliveries of one key that are in one process at the same time do not reach the cache together: the engine lets
// local duplicates wait for the first one, and then decides them itself.
//
// # The filter
//
// [Filter] reports for a hash "certainly not added" or "perhaps". It saves reads of a second, larger memory of keys (records
// that were moved out of the store): with 1 % false positives 99 of 100 new keys need no read. New uses no filter, because a
// claim of a store writes in the same step as it reads, and so saves nothing. A filter that does not reach back far enough
// reports "perhaps" for everything: that costs reads and changes no outcome.
package cache

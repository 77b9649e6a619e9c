// Package outbox carries messages that committed with a record to where they are meant to go (protocol section 8).
//
// A handler that publishes to another system and then completes its record loses the message when it dies between the
// two, or publishes one for work that was rolled back. So it emits instead (semel.Attempt.Emit): the messages commit with
// the record, into a queue of the same database. That queue is the outbox. A [Relay] takes them from there to any
// [driver.Sender]: another database, SQS, Kafka.
//
// Publishing is at least once: a relay that dies between the two publishes again. The copies have the same id, in
// Message.ID and in the header [HeaderID], and a consumer of semel on the other side takes them for one. Messages of one
// group are first published in the order in which they committed. Nothing is skipped: there is no cursor, a message is in
// the queue until it was published. Several relays of one outbox may run at once.
package outbox

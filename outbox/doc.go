// Package outbox relays messages that committed with a record to their target (protocol section 8).
//
// If a handler publishes to another system and then completes its record, it loses the message when it dies between the
// two, or publishes one for work that was rolled back. So it emits instead (semel.Attempt.Emit): the messages commit
// with the record, into a queue of the same database. That queue is the outbox. A [Relay] moves them to any
// [driver.Sender]: another database, SQS, Kafka.
//
// Publishing is at least once: a relay that dies before its ack publishes again. The copies have the same ID, in
// Message.ID and in the header [HeaderID], and a consumer of semel takes them for one. Messages of one group are first
// published in the order in which they committed. Nothing is skipped: there is no cursor, and a message stays in the
// queue until it is published. Several relays of one outbox may run at once.
package outbox

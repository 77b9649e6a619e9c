// Package nats is a queue on NATS JetStream: a stream with one durable pull consumer. It keeps no records: any store does.
//
// A stream is at least once: a message that is not acknowledged within the consumer's AckWait is delivered again, and
// the server accepts acknowledgements of expired deliveries. The record of a key decides. Package
// [github.com/semel-dev/semel/driver/redeliver] has the deadline that keeps an expired delivery from affecting the next
// one.
//
// semel requires these settings: acknowledgements are explicit, MaxDeliver is -1 (a message that reaches it is no
// longer delivered and stays in the stream), the visibility is the consumer's AckWait. [Create] makes such a stream and
// consumer; [Open] refuses others. A stream keeps no dead letters: package
// [github.com/semel-dev/semel/driver/deadletter] keeps them with the records. A NATS server acknowledges messages before it writes
// them to disk: it syncs every two minutes unless its sync_interval is "always". [Queue.Features] reports that.
package nats

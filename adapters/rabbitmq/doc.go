// Package rabbitmq is a queue on RabbitMQ, quorum or classic. It keeps neither records nor dead letters: any store does, and
// package [github.com/semel-dev/semel/driver/deadletter] connects the dead letters to a queue.
//
// A delivery belongs to the channel that received it. RabbitMQ redelivers it when the channel ends, and has no earlier
// deadline than its consumer_timeout (30 minutes by default). Receipts of a channel that has ended are Lost.
//
// RabbitMQ cannot delay a message. The adapter keeps a message with a short delay unacknowledged. One with a longer delay
// waits in a queue QUEUE.delay.10s or QUEUE.delay.5m, which the adapter declares and consumes.
//
// [Create] declares a quorum queue without a delivery limit. A delivery limit loses messages: RabbitMQ drops a message that
// was delivered more often, or moves it to a dead-letter exchange, and every disconnect counts for all prefetched messages.
// RabbitMQ 4.0 sets a limit of 20 unless the queue has the argument x-delivery-limit. [Open] reads the arguments of the queue,
// and [Queue.Features] reports those that can lose messages.
package rabbitmq

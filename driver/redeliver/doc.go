// Package redeliver holds what several queue adapters need to redeliver messages safely.
//
// [Receipt] is the deadline of one delivery, for brokers that still accept the receipt of a delivery that has expired
// (SQS, NATS JetStream, Pub/Sub). [Schedule] is a due-time heap, for brokers that cannot delay a message (Kafka, RabbitMQ):
// the adapter keeps the delivery and redelivers it when it is due. [Wake] and [Wait] are what its receives wait with.
package redeliver

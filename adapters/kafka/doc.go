// Package kafka is a queue on Kafka: a topic, and a consumer group that keeps the position. It keeps no records: any store
// does. Package [github.com/semel-dev/semel/driver/deadletter] keeps its dead letters in a store, too.
//
//	q, err := kafka.Open(ctx, "orders", kafka.Options{Client: []kgo.Opt{kgo.SeedBrokers("b1:9092", "b2:9092")}})
//	defer q.Close()
//	queue := deadletter.With(q, store.DeadLetterQueue(q.Features().Name))
//
// A group's position is one number for each partition, so a message that is settled before an earlier one is only remembered
// by its process. If that process dies, up to [Options].Window messages of each partition are redelivered, and their records
// replay them. Messages with the same Kafka key are delivered in order, one at a time. A message that waits for its next
// attempt holds back its key, and other keys continue until the window is full.
//
// When a partition moves to another member, its messages in flight are redelivered there, and acks of the earlier member are
// Lost. Effects are fenced by the records: Kafka itself refuses only the position of an earlier member.
package kafka

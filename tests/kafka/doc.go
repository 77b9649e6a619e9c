// Package kafka tests the adapter of Kafka with real processes: workers and a broker that are killed and frozen, judged by a
// ledger in PostgreSQL.
package kafka

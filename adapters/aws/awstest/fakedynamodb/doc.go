// Package fakedynamodb is the part of Amazon DynamoDB that semel and its users' tests need, in the process of a test:
// tables, items, expressions, transactions, batches, queries, scans and time to live, with the service's errors and the
// units that it would charge for. Options simulate bad days of the service: reads that lag behind writes, transactions that
// conflict, expired items that stay for days. Throttling and broken connections are faults of the transport, in package
// awstest.
//
// Secondary indexes, streams, PartiQL and the parameters from before expressions are refused, never ignored.
package fakedynamodb

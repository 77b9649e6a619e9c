// Package redis keeps records and queues in Redis 7 and Valkey.
//
//	client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true})
//	store, err := redis.Open(ctx, client, redis.Options{})
//	queue, err := store.Queue(ctx, "orders") // CreateQueue makes it
//
// A record is one string. One Lua script makes all changes; it compares bytes at fixed offsets and never parses. It claims new
// keys, extends leases and completes plain runs by itself, one call for a batch. The decision table decides any other change in
// Go, on the record that was read. The script writes it if the record still begins with the same 120 bytes; else the table
// decides again.
//
// A queue is a stream with one consumer group. The script that writes a record also settles its delivery ([Store.Joins]). Entries
// are deleted when they are handled, so one group reads a stream, and nobody may trim it. Expired deliveries are found by
// XAUTOCLAIM. The server compares an entry with its consumer and its delivery count before it settles or extends it: what
// another consumer has received is Lost for certain. A message that is to be delivered again becomes a new entry.
//
// # Keys
//
// PREFIX is Options.Prefix, S the shard, H the first 16 bytes of the key's hash, Q the name of a queue:
//
//	{PREFIX}:shards       the number of shards
//	{PREFIX}:longterm     the long-term periods of consumers in µs (sorted set)
//	{PREFIX}:queues       the visibility of each queue in µs (hash)
//	{PREFIX:S}:r:H        a record (string)
//	{PREFIX:S}:x:H        its side: journals of steps, audit log, duplicates (hash)
//	{PREFIX:S}:index      the hashes, scored by when a sweep has to look (sorted set)
//	{PREFIX:S}:failed     those of records that need a person, scored by since when (sorted set)
//	{PREFIX:S}:uncertain  the same
//	{PREFIX:S}:floor      the greatest token so far, at least the time in µs since 1970
//	{PREFIX:S}:q:Q        a queue (stream)
//	{PREFIX:S}:delayed:Q  messages that wait for their time (sorted set)
//	{PREFIX:S}:dead:Q     its dead letters (hash), and their order in {PREFIX:S}:deadindex:Q (sorted set)
//
// # What Redis can lose
//
// Open reads the server's settings. [driver.StoreFeatures] and [driver.QueueFeatures] state the possible loss: with appendfsync
// always and no replicas nothing, otherwise the last seconds, the last writes before a failover, or all. The guarantee line
// prints it.
//
// Effects do not commit with records, because a script that fails in the middle is not rolled back. Give downstreams the
// effect key.
package redis

// Package redis is a record store on Redis 7 and Valkey.
//
//	client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true})
//	store, err := redis.Open(ctx, client, redis.Options{})
//
// A record is one string. One Lua script makes all changes; it compares bytes at fixed offsets and never parses. It claims new
// keys, extends leases and completes plain runs by itself, one call for a batch. The decision table decides any other change in
// Go, on the record that was read. The script writes it if the record still begins with the same 120 bytes; else the table
// decides again.
//
// # Keys
//
// PREFIX is Options.Prefix, S the shard, H the first 16 bytes of the key's hash:
//
//	{PREFIX}:shards     the number of shards
//	{PREFIX}:longterm   the long-term periods of consumers in µs (sorted set)
//	{PREFIX:S}:r:H      a record (string)
//	{PREFIX:S}:x:H      its side: journals of steps, audit log, duplicates (hash)
//	{PREFIX:S}:index    the hashes, scored by when a sweep has to look (sorted set)
//	{PREFIX:S}:floor    the greatest token so far, at least the time in µs since 1970
//
// # What Redis can lose
//
// Open reads the server's settings. [driver.StoreFeatures] states the possible loss: with appendfsync always and no
// replicas nothing, otherwise the last seconds, the last records before a failover, or all. The guarantee line prints
// it.
//
// Effects do not commit with records, because a script that fails in the middle is not rolled back. Give downstreams the
// effect key.
package redis

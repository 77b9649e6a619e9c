// Package server starts throw-away servers for tests and benchmarks: a PostgreSQL, a Redis or a Valkey of one's own in a
// temporary directory, on a free loopback port, with the durability that production has. It needs the standard library and
// the server's own programs only.
//
// [PostgreSQL], [Redis], [Valkey] and [NATS] start a server that may be stopped, killed with all its processes, and started again
// on the same data and port. [Shared] gives ordinary tests a server to make their own database on. [Proxy] stands between
// a client and a server and misbehaves on demand: it cuts, refuses, stalls, and loses the answer of a request that arrived.
//
// Nothing remains behind: when the process that started a server dies, however it dies, a guard stops the server and
// removes its directory.
//
// Where the programs come from, in this order: the directory that SEMEL_POSTGRES_BIN, SEMEL_REDIS_BIN, SEMEL_VALKEY_BIN or SEMEL_NATS_BIN
// names, PATH, the directories where packages put them, a cache. When they are nowhere and the system has apt-get, the
// packages of PostgreSQL, Redis and NATS are downloaded and unpacked into the cache, which needs no root and installs nothing. The
// cache is os.UserCacheDir()/semel/servers, for root /var/cache/semel/servers (servers run as another user then, who may
// not look into root's home); SEMEL_SERVER_CACHE names another.
package server

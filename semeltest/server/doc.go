// Package server starts throw-away servers for tests and benchmarks: a PostgreSQL, a MariaDB, a Redis, a Valkey, a NATS or a
// RabbitMQ server in a temporary directory, on a free loopback port, with the durability that production has. It needs only the
// standard library and the server's own programs.
//
// [PostgreSQL], [MySQL], [Redis], [Valkey], [NATS] and [RabbitMQ] start a server that may be stopped, killed with all its processes, and
// started again on the same data and port. [Own] does so for one test. [Shared] gives ordinary tests a server for their own databases. [Proxy] sits
// between a client and a server and misbehaves on demand: it cuts, refuses, stalls, and loses the response to a request
// that arrived.
//
// Nothing remains behind: when the process that started a server dies, however it dies, a guard stops the server and
// removes its directory.
//
// The package looks for the programs in this order: the directory that SEMEL_POSTGRES_BIN, SEMEL_MYSQL_BIN, SEMEL_REDIS_BIN,
// SEMEL_VALKEY_BIN, SEMEL_NATS_BIN or SEMEL_RABBITMQ_BIN names, PATH, the directories where packages put them, a cache. If it finds
// none and the system has apt-get, it downloads the packages of PostgreSQL, Redis and NATS and unpacks them into the cache. That
// needs no root and installs nothing. The cache is os.UserCacheDir()/semel/servers, or /var/cache/semel/servers for
// root, because servers then run as another user, which may not read root's home. SEMEL_SERVER_CACHE names another.
package server

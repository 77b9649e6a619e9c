// Package shapes does the standard work with semel: each shape is one way to write a handler on one store.
package shapes

import "github.com/semel-dev/semel/bench/internal/harness"

// All are the shapes, in the order of the report.
func All() []harness.Measure {
	// What a short run writes fits between two checkpoints; in a long one they take part.
	const long = 300_000
	return append([]harness.Measure{
		postgresQueued(1, "semel on PostgreSQL, queued statements, 1 committer"),
		postgresQueued(2, "semel on PostgreSQL, queued statements, 2 committers"),
		postgresAtCommit(), postgresGroup(1), postgresGroup(2), postgresBatch(), postgresTx(), postgresQueue(),
		postgresClaims(256, 40000), postgresClaims(32, 20000), postgresClaims(1, 1500), postgresGrowth(),
		sqliteWhole(), sqliteClaims(256, 40000), sqliteClaims(32, 20000), sqliteClaims(1, 2000), sqliteGrowth(), sqliteSweep(), postgresSweep(),
		engine(), consumer(),
		sqliteWindow(), postgresWindow(), postgresCheckpoint(),
		harness.Long(postgresQueued(1, "semel on PostgreSQL, queued statements, 1 committer"), long),
		harness.Long(postgresAtCommit(), long),
		harness.Long(postgresBatch(), long), harness.Long(postgresQueue(), long), harness.Long(sqliteWhole(), long),
	}, caches()...)
}

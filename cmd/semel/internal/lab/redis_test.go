package lab

import (
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestS0_28_ScenariosOnRedis: records in Redis, the queue in an SQLite file. Effects do not commit with these records: the
// effect key makes each of them one.
func TestS0_28_ScenariosOnRedis(t *testing.T) {
	onlyFull(t)
	runAll(t, place.Where{On: place.Embedded, Store: server.Shared(t, "redis")}, elsewhere(), noEmit)
}

// TestS0_28_ScenariosOnStreams: the queue is a stream of the same Redis, whose acks commit with the records.
func TestS0_28_ScenariosOnStreams(t *testing.T) {
	onlyFull(t)
	runAll(t, place.Where{Store: server.Shared(t, "redis")}, elsewhere(), noEmit)
}

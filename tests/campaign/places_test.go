package campaign

import (
	"context"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

// place is where a campaign has messages, records and effects.
type place struct {
	kind  string      // of crew.Task
	modes []crew.Mode // of its workers
	// servers are those of the ledger and of the queue; one if it is the same. needs are their names for server.Need.
	servers []starter
	needs   []string
	visible time.Duration // how long a worker owns a message; 0: 5 s
	// steady: the server of the ledger stays up. Where effects are written by themselves a handler would have to write one again
	// whose outcome is unknown: a doubt that no record counts.
	steady bool
}

// places are the queues, by their names for -queue.
var places = map[string]place{
	"postgres": onTables,
	// A MariaDB that shares its disk and processors takes longer for a batch than others: with leases of 2 s, workers take over
	// from each other until the attempts are used up.
	"mysql": {kind: "mysql", modes: every[:2], servers: []starter{starts(server.MySQL, server.Fast)}, needs: []string{"mysql"},
		visible: 15 * time.Second},
	"streams": {kind: "redis", modes: []crew.Mode{crew.Outside}, servers: []starter{postgres, starts(server.Redis, server.Fast)},
		needs: []string{"postgres", "redis"}, steady: true},
	"rabbitmq": {kind: "rabbitmq", modes: every, servers: []starter{postgres, starts(server.RabbitMQ, server.Fast)},
		needs: []string{"postgres", "rabbitmq"}},
	"nats":  {kind: "nats", modes: every, servers: []starter{postgres, starts(server.NATS, server.Fast)}, needs: []string{"postgres", "nats"}},
	"kafka": {kind: "kafka", modes: every, servers: []starter{postgres, starts(kfake.New, server.Fast)}, needs: []string{"postgres"}},
}

// every is the modes of workers whose records are in PostgreSQL.
var every = []crew.Mode{crew.Queued, crew.Open, crew.Batched}

var (
	postgres = starts(server.PostgreSQL, server.Immediate)
	onTables = place{modes: every, servers: []starter{postgres}, needs: []string{"postgres"}}
)

// breakable is a server that the campaign takes down.
type breakable interface {
	Start(ctx context.Context) error
	Stop(how server.Mode) error
	Kill() error
	Close() error
	URL() string
}

// victim is one with the way in which it is stopped.
type victim struct {
	breakable
	stop server.Mode
}

type starter func(ctx context.Context) (victim, error)

func starts[S breakable](start func(context.Context, server.Options) (S, error), stop server.Mode) starter {
	return func(ctx context.Context) (victim, error) {
		s, err := start(ctx, server.Options{})
		return victim{s, stop}, err
	}
}

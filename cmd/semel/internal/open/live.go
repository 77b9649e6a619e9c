package open

import (
	"context"

	"github.com/semel-dev/semel/cmd/semel/internal/advice"
)

// Adviser is an optional interface of databases whose queues have settings on the server.
type Adviser interface {
	// Live is how the queue is set now.
	Live(ctx context.Context, queue string) (*advice.Live, error)
}

// Live is how the queue that a URL names is set on its server; nil for kinds that keep no such settings.
func (s *Set) Live(ctx context.Context, flag, raw string) (*advice.Live, error) {
	t, err := s.parse(flag, raw)
	if err != nil {
		return nil, err
	}
	db, err := s.db(ctx, t)
	if err != nil {
		return nil, err
	}
	if x, ok := db.(Adviser); ok {
		return x.Live(ctx, t.QueueName())
	}
	return nil, nil //nolint:nilnil // most kinds have none
}

package sqlite

import (
	"context"
	"fmt"
)

// Create makes the queue before its first message, so that [DB.Queues] lists it. A queue that is there stays as it is.
func (q *Queue) Create(ctx context.Context) error {
	err := q.db.write(ctx, 1, func(t *txn) error {
		_, err := t.queue(q.name, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("create queue %q: %w", q.name, err)
	}
	return nil
}

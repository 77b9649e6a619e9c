package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// WithWriteLock runs f under the write locks of the place's SQLite files: see the function [WithWriteLock].
func (r *Place) WithWriteLock(ctx context.Context, f func()) error {
	return WithWriteLock(ctx, f, r.files...)
}

// WithWriteLock runs f while no process writes to one of the SQLite files. A process that is stopped with a write lock stops
// all others, and the parent, which is to wake it up again. It blocks until the locks are free.
func WithWriteLock(ctx context.Context, f func(), files ...*sql.DB) (err error) {
	for _, db := range files {
		c, cerr := db.Conn(ctx)
		if cerr != nil {
			return fmt.Errorf("wait for the write lock: %w", cerr)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			return fmt.Errorf("wait for the write lock: %w", err)
		}
		defer func() {
			if _, rerr := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); rerr != nil {
				err = errors.Join(err, fmt.Errorf("release the write lock: %w", rerr))
			}
		}()
	}
	f()
	return nil
}

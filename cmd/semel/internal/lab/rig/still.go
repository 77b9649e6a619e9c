package rig

import (
	"context"
	"errors"
	"fmt"
)

// Still runs f while no process of the run is in the middle of a write to a file that has one write lock: who is stopped
// with that lock stops everybody, the parent too, which is to wake it up again. It blocks until the lock is free.
func (r *Rig) Still(ctx context.Context, f func()) (err error) {
	for _, db := range r.files {
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
				err = errors.Join(err, fmt.Errorf("give the write lock back: %w", rerr))
			}
		}()
	}
	f()
	return nil
}

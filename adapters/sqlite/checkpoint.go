package sqlite

import (
	"time"

	"github.com/semel-dev/semel/driver/rowstore"
)

// checkpointer carries the write-ahead log over into the database while the writer appends, on a connection of its own.
// SQLite's own checkpoints run in the writer, which then waits for the writes of a whole log: they are random where keys come in
// no order. Only the rest that was appended meanwhile is carried over while this process
// does not write, so that the next transaction begins the log anew.
type checkpointer struct {
	db   *DB
	s    *session
	kick chan struct{} // there was a commit
	next int64         // frames from which on it tries
	// last and done are how many frames the log had at the last look, and how many of them the database had. If either
	// shrinks, the log began anew. A log that began anew may already be as long as before.
	last, done int64
}

const (
	// checkpointPause is the pause after a look.
	checkpointPause = 10 * time.Millisecond
	// checkpointRounds bounds how often it carries over next to the writer before the writer has to wait.
	checkpointRounds = 3
	// checkpointRest: less than this part of Options.Checkpoint is carried over while the writer waits.
	checkpointRest = 16
	// checkpointAgain: when a reader holds up the end of a log, it is tried again after this part of Options.Checkpoint was
	// appended.
	checkpointAgain = 8
	// checkpointLimit times Options.Checkpoint is where a commit checkpoints itself.
	checkpointLimit = 2
)

func (c *checkpointer) init(db *DB, s *session) {
	c.db, c.s, c.kick, c.next = db, s, make(chan struct{}, 1), int64(db.o.Checkpoint)
}

func (c *checkpointer) close() error {
	if c.s == nil {
		return nil
	}
	return c.s.close()
}

// committed makes it look.
func (c *checkpointer) committed() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *checkpointer) loop() {
	defer c.db.done.Done()
	for {
		select {
		case <-c.db.closing:
			return
		case <-c.kick:
		}
		c.look()
		select {
		case <-c.db.closing:
			return
		case <-time.After(checkpointPause):
		}
	}
}

// look carries the log over when it is long enough. After an error the next look tries again: a long log costs only time
// and space.
func (c *checkpointer) look() {
	frames, carried, err := c.pragma("NOOP")
	if err != nil {
		return
	}
	if frames < c.last || carried < c.done {
		c.next = int64(c.db.o.Checkpoint)
	}
	if c.last, c.done = frames, carried; frames < c.next {
		return
	}
	c.next = frames + int64(c.db.o.Checkpoint/checkpointAgain)
	for range checkpointRounds {
		if _, _, err := c.pragma("PASSIVE"); err != nil {
			return
		}
		frames, carried, err := c.pragma("NOOP")
		if err != nil {
			return
		}
		if frames-carried < int64(c.db.o.Checkpoint/checkpointRest) {
			break
		}
	}
	select {
	case <-c.db.closing:
	case c.db.lock <- struct{}{}:
		if frames, carried, err := c.pragma("PASSIVE"); err == nil {
			c.last, c.done = frames, carried
		}
		<-c.db.lock
	}
}

// pragma checkpoints and returns how many frames the log has, and how many of them are carried over.
func (c *checkpointer) pragma(mode string) (frames, carried int64, err error) {
	err = c.s.query(func(v rowstore.Row) error {
		frames, carried = v.Int(1), v.Int(2)
		return nil
	}, "PRAGMA wal_checkpoint("+mode+")")
	return frames, carried, err
}

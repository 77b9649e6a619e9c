package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// uncounted is a queue that does not count deliveries.
type uncounted struct{ driver.Queue }

func (q uncounted) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Counts = false
	return f
}

func (q uncounted) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, limit)
	for i := range ds {
		ds[i].Count = 0
	}
	return ds, err
}

// poisoned is a consumer whose handlers run in open transactions; the one of the message poison kills its process.
func poisoned(ctx context.Context, db *DB) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cfg := semel.Config{
		Queue: uncounted{db.Queue("q")}, Store: db.Store(), Visibility: 300 * time.Millisecond, MaxAttempts: 1,
		Logger: slog.New(slog.DiscardHandler),
		Handler: semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", a.Key.Raw); err != nil {
				return err
			}
			if a.Key.Raw != "poison" {
				return nil
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			_ = self.Kill()
			select {} // it takes effect
		}),
	}
	go func() { // until nothing is left
		for {
			if s, err := db.Queue("q").Stats(ctx); err == nil && s.Empty() {
				stop()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	c, err := semel.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// TestFM83_KillsAreCountedWhereTheQueueCountsNothing: a message that kills its process inside its transaction becomes a dead
// dead letter, and its neighbours take effect once.
func TestFM83_KillsAreCountedWhereTheQueueCountsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{})
	exec_(t, db, "CREATE TABLE ledger (id TEXT)")
	q := db.Queue("q")
	if err := q.Send(t.Context(), driver.Message{ID: "a"}, driver.Message{ID: "poison"}, driver.Message{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for ; ; kills++ {
		cmd := child("poison", path)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err == nil {
			break
		} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Exited() {
			t.Fatal(err) // it was not killed
		}
		if kills == 8 {
			t.Fatal("the message has killed 9 processes, and is no dead letter")
		}
	}
	if ls := must(q.DeadLetters(t.Context(), 0))(t); len(ls) != 1 || ls[0].Message.ID != "poison" || kills < 3 {
		t.Errorf("after %d kills the dead letters are %+v", kills, ls)
	}
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 2 {
		t.Errorf("%d effects, wanted those of the neighbours", n)
	}
	if n := count(t, db, "SELECT count(DISTINCT id) FROM ledger WHERE id <> 'poison'"); n != 2 {
		t.Errorf("%d neighbours took effect", n)
	}
}

package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// removeFile removes an SQLite file with those that SQLite puts next to it.
func removeFile(path string) error {
	var errs []error
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// makeSchema makes the schema of a run, with semel's tables in it, and returns the URL that leads to it.
func (s *Setup) makeSchema(ctx context.Context, flag, raw, run string) (string, error) {
	name := "semel_lab_" + s.stem + "_" + run
	if err := execute(ctx, flag, raw, "SELECT 1"); err != nil { // what is not there need not be cleaned up
		return "", err
	}
	s.removes = append(s.removes, func(ctx context.Context) error {
		if err := execute(ctx, flag, raw, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			return fmt.Errorf("drop the schema %s: %w", name, err)
		}
		return nil
	})
	// Two halves of a pair may be in one database.
	if err := execute(ctx, flag, raw, "CREATE SCHEMA IF NOT EXISTS "+name); err != nil {
		return "", fmt.Errorf("make a schema for the run: %w", err)
	}
	url, err := open.InSchema(raw, name)
	if err != nil {
		return "", err
	}
	if _, _, err := postgres.Migrate(ctx, url); err != nil {
		return "", open.Explain(flag, raw, "make semel's tables in", err)
	}
	return url, nil
}

// execute carries out one statement on a connection of its own.
func execute(ctx context.Context, flag, raw, statement string) error {
	url, err := open.InSchema(raw, "")
	if err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return open.Explain(flag, raw, "open", err)
	}
	_, err = c.Exec(ctx, statement)
	return errors.Join(err, c.Close(ctx))
}

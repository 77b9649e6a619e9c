package rig

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// rigConnections are enough for a worker of the lab: one committer, and the unguarded one's own transactions.
const rigConnections = 8

func openPostgres(ctx context.Context, url string, visibility time.Duration) (*Rig, error) {
	db, err := postgres.Open(ctx, url, postgres.Options{Visibility: visibility, MaxConns: rigConnections})
	if err != nil {
		return nil, err
	}
	std := stdlib.OpenDBFromPool(db.Pool())
	r := &Rig{Queue: db.Queue(QueueName), Store: db.Store(), SQL: std, close: func() error {
		return errors.Join(std.Close(), db.Close())
	}}
	return r, r.makeTables(ctx, "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
}

// Schemas are what the lab makes in the PostgreSQL database of a URL: a schema for each run, with semel's tables in it.
type Schemas struct {
	url   string
	stem  string
	names []string
}

// NewSchemas makes nothing yet: Make does.
func NewSchemas(url string) *Schemas {
	return &Schemas{url: url, stem: "semel_lab_" + strings.ToLower(rand.Text()[:8])}
}

// Make makes the schema of a run and returns the URL that leads to it.
func (s *Schemas) Make(ctx context.Context, run string) (string, error) {
	name := s.stem + "_" + run
	s.names = append(s.names, name)
	if err := s.exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return "", fmt.Errorf("make a schema for the run: %w", err)
	}
	url, err := open.InSchema(s.url, name)
	if err != nil {
		return "", err
	}
	if _, _, err := postgres.Migrate(ctx, url); err != nil {
		return "", err
	}
	return url, nil
}

// Drop removes the schemas, also when the demo was interrupted.
func (s *Schemas) Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	for _, name := range s.names {
		if err := s.exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			errs = append(errs, fmt.Errorf("drop the schema %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Schemas) exec(ctx context.Context, sql string) error {
	url, err := open.InSchema(s.url, "")
	if err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql)
	return errors.Join(err, c.Close(ctx))
}

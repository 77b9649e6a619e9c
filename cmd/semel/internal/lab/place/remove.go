package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// ours is in the names of everything that a Setup makes on servers: nothing else is removed.
const ours = "-lab-"

// Remove removes a place whose Setup is gone, after a process was killed, say. It does what [Setup.Remove] does. Missing
// parts are no error; the fakes ended with their process. What a Setup did not make is refused.
func Remove(ctx context.Context, p URLs) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
	defer cancel()
	var errs []error
	for _, side := range []struct{ flag, raw string }{{"queue", p.Queue}, {"store", p.Store}} {
		if side.raw == "" {
			continue
		}
		if err := removeSide(ctx, p, side.flag, side.raw); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}

func removeSide(ctx context.Context, p URLs, flag, raw string) error {
	t, err := open.Parse(flag, raw)
	if err != nil {
		return err
	}
	if t.Scheme == "nats" || t.Scheme == "amqp" {
		if !strings.Contains(t.Queue, ours) {
			return fmt.Errorf("%s was not made by the lab: left alone", t.Shown)
		}
		if t.Scheme == "amqp" {
			return open.RemoveRabbitMQ(ctx, raw)
		}
		return open.RemoveNATS(ctx, raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("--%s is not a URL", flag)
	}
	faked := p.Fakes != "" && u.Query().Get("endpoint") == p.Fakes
	switch {
	case faked:
		return nil
	case t.Scheme == "sqlite":
		return removeFile(t.Path)
	case t.Scheme == "postgres":
		return dropSchema(ctx, flag, raw, u.Query().Get("search_path"))
	case t.Scheme == "redis":
		return removePrefix(ctx, raw)
	case !strings.Contains(u.Host, ours):
		return fmt.Errorf("%s was not made by the lab: left alone", t.Shown)
	}
	cfg, err := open.AWS(ctx, flag, raw)
	if err != nil {
		return err
	}
	if t.Scheme == "dynamodb" {
		client := awsdynamodb.NewFromConfig(cfg)
		errs := []error{removeTable(ctx, client, u.Host)}
		for _, end := range []string{ledgerEnd, marksEnd} {
			errs = append(errs, removeTable(ctx, client, u.Host+end))
		}
		if gate := u.Query().Get("gate"); strings.Contains(gate, ours) {
			errs = append(errs, removeTable(ctx, client, gate))
		}
		return errors.Join(errs...)
	}
	client := awssqs.NewFromConfig(cfg)
	return errors.Join(removeQueue(ctx, client, u.Host), removeQueue(ctx, client, u.Host+deadLetterEnd))
}

func dropSchema(ctx context.Context, flag, raw, name string) error {
	if !strings.HasPrefix(name, "semel_lab_") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("--%s: schema %q was not made by the lab: left alone", flag, name)
	}
	return execute(ctx, flag, raw, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
}

package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// brokerQueue is a queue whose dead letters are elsewhere.
type brokerQueue struct {
	driver.Queue
	driver.Sender
	driver.QueueInspector
	driver.DeadLetterQueue
}

// makeBrokerQueue makes the queue of a run in Redis or on a broker.
func (s *Setup) makeBrokerQueue(ctx context.Context, p URLs, run string, how open.NewQueue) (raw string, err error) {
	switch {
	case s.queue.scheme != "redis":
		raw, err = s.brokerURL(run)
		s.made = append(s.made, made{"queue", raw})
	case s.queue == s.store:
		raw = withQueue(p.Store)
	default:
		raw, err = s.makePrefix(ctx, s.queue, run)
		raw = withQueue(raw)
	}
	if err != nil {
		return "", err
	}
	set := open.New(open.Options{})
	_, err = set.Create(ctx, "queue", raw, how)
	return raw, errors.Join(err, set.Close())
}

// brokerURL is the URL of a run's queue: its name begins with the one in the URL.
func (s *Setup) brokerURL(run string) (string, error) {
	t, err := open.Parse("queue", s.queue.url)
	if err != nil {
		return "", err
	}
	base, query, _ := strings.Cut(s.queue.url, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	q.Set("queue", s.nameAs(t.Queue, run))
	q.Set("wait", "1s") // a worker that is to stop when the queue is empty waits so long
	return base + "?" + q.Encode(), nil
}

// makePrefix makes the URL of a run in Redis: its keys have a prefix of their own.
func (s *Setup) makePrefix(ctx context.Context, at side, run string) (string, error) {
	first, err := open.RedisPrefix(at.url)
	if err != nil {
		return "", err
	}
	raw, err := open.WithRedisPrefix(at.url, first+ours+s.stem+"-"+run)
	if err != nil {
		return "", err
	}
	client, err := open.Redis("store", raw)
	if err != nil {
		return "", err
	}
	if err := errors.Join(client.Ping(ctx).Err(), client.Close()); err != nil { // what does not respond need not be cleaned up
		return "", open.Explain("store", raw, "open", err)
	}
	s.made = append(s.made, made{"store", raw})
	return raw, nil
}

// removePrefix removes the keys of a run.
func removePrefix(ctx context.Context, raw, prefix string) (err error) {
	client, err := open.Redis("store", raw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, "{"+prefix+"*", 1000).Result()
		if err == nil && len(keys) > 0 {
			err = client.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			return fmt.Errorf("remove the keys with prefix %s: %w", prefix, err)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// withDeadLetters is a queue with its dead letters: where it keeps none, they are in the database of the records.
func withDeadLetters(q driver.Queue, s driver.Store) (Queue, error) {
	if whole, ok := q.(Queue); ok {
		return whole, nil
	}
	q = open.WithDeadLetters(q, s)
	dead, keeps := driver.DeadLettersOf(q)
	sender, sends := driver.As[driver.Sender](q)
	inspector, counts := driver.As[driver.QueueInspector](q)
	if !sends || !counts || !keeps {
		return nil, output.Usage("--queue: the lab needs a queue that it can send to and look at, with dead letters, and %s is not", q.Features().Name)
	}
	return brokerQueue{q, sender, inspector, dead}, nil
}

// redis opens the records of a run.
func (o *opening) redis(ctx context.Context) error {
	prefix, err := open.RedisPrefix(o.urls.Store)
	if err != nil {
		return err
	}
	client, err := open.Redis("store", o.urls.Store)
	if err != nil {
		return err
	}
	o.place.closers = append(o.place.closers, client.Close)
	st, err := o.set.Store(ctx, o.urls.Store)
	if err != nil {
		return err
	}
	o.place.Store = st.(Store)
	o.place.tables(hashTable{client, "{" + prefix + "}:ledger"}, hashTable{client, "{" + prefix + "}:marks"})
	return nil
}

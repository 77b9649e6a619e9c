// Package open turns the URLs of the command line into queues and stores. Each kind of database has a file of its own.
package open

import (
	"context"
	"net/url"
	"sort"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// kinds are the databases that this binary knows.
var kinds = []*kind{memoryKind, sqliteKind, postgresKind}

// kind is what an adapter brings to the command line.
type kind struct {
	// schemes are its URL schemes, the usual one first.
	schemes []string
	// ephemeral: what is in it ends with the process.
	ephemeral bool
	// parse fills in what is special to the kind, and place. An error is of usage, and never shows a password.
	parse func(flag, raw string, t *Target) error
	open  func(ctx context.Context, t Target, o Options) (Database, error)
	// migrate and schemaSQL are nil for a kind without a schema.
	migrate   func(ctx context.Context, t Target) (from, to int, err error)
	schemaSQL func() string
}

// DefaultQueue is the queue of a URL that names none.
const DefaultQueue = "default"

// Target is a parsed URL.
type Target struct {
	Scheme string
	// Path is the database file (sqlite), absolute and with symbolic links resolved where it exists, so that two
	// spellings of one file are one database.
	Path string
	// Shown is the place for people: never a password.
	Shown string
	// Queue is the queue's name, "" when the URL names none.
	Queue string

	// conn is the URL without our own parameters. It may hold a password: a pointer, so that nothing that prints a Target
	// prints it.
	conn *string
	// place tells databases apart: two targets of one place are one database.
	place string
	kind  *kind
}

// Ephemeral reports that what is in it ends with the process.
func (t Target) Ephemeral() bool { return t.kind.ephemeral }

// QueueName is the name of the queue that is meant.
func (t Target) QueueName() string {
	if t.Queue == "" {
		return DefaultQueue
	}
	return t.Queue
}

// Parse reads a URL. flag names where it came from, for the error.
func Parse(flag, raw string) (Target, error) {
	if raw == "" {
		return Target{}, output.Usage("--%s is missing", flag).WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	scheme, _, ok := strings.Cut(raw, ":")
	if !ok {
		return Target{}, output.Usage("--%s %q has no scheme", flag, Redact(raw)).WithHint("--%s 'sqlite:%s'", flag, Redact(raw))
	}
	t := Target{Scheme: strings.ToLower(scheme)}
	var known []string
	for _, k := range kinds {
		for _, s := range k.schemes {
			if s == t.Scheme {
				t.kind, t.Scheme = k, k.schemes[0]
			}
		}
		known = append(known, k.schemes[0])
	}
	if t.kind == nil {
		return Target{}, output.Usage("--%s has the unknown URL scheme %q (known: %s)", flag, scheme, strings.Join(known, ", ")).
			WithHint("--%s 'sqlite:orders.db?queue=orders'", flag)
	}
	if err := t.kind.parse(flag, raw, &t); err != nil {
		return Target{}, err
	}
	return t, nil
}

// onlyQueue reads a query whose only parameter is the queue.
func (t *Target) onlyQueue(flag, rawQuery string) error {
	q, err := url.ParseQuery(rawQuery)
	if err != nil {
		return output.Usage("--%s: query %q: %w", flag, rawQuery, err)
	}
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if name != "queue" {
			return output.Usage("--%s: unknown query parameter %q (known: queue)", flag, name)
		}
	}
	return t.setQueue(flag, q["queue"])
}

// setQueue takes the values of the parameter queue; none leaves the name empty.
func (t *Target) setQueue(flag string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 || values[0] == "" {
		return output.Usage("--%s: query parameter queue must be given once, and not be empty", flag)
	}
	t.Queue = values[0]
	if len(t.Queue) > 200 || strings.ContainsFunc(t.Queue, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return output.Usage("--%s: queue name %q is longer than 200 bytes or has control characters", flag, t.Queue)
	}
	return nil
}

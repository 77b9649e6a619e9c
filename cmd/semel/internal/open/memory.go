package open

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

var memoryKind = &kind{
	schemes: []string{"memory"}, form: "memory://?queue=orders", ephemeral: true, parse: parseMemory,
	open: func(_ context.Context, _ Target, o Options) (Database, error) {
		var with []memory.Option
		if o.Visibility > 0 {
			with = append(with, memory.WithVisibility(o.Visibility))
		}
		return memoryDB{memory.Open(with...)}, nil
	},
}

func parseMemory(flag, raw string, t *Target) error {
	u, err := url.Parse(raw)
	if err != nil {
		return output.Usage("--%s %q is not a URL: %w", flag, Redact(raw), unquoted(err)).WithHint("memory://?queue=NAME")
	}
	if u.Host != "" || u.Opaque != "" || strings.Trim(u.Path, "/") != "" {
		return output.Usage("--%s %q: memory:// takes no path", flag, Redact(raw)).WithHint("memory://?queue=NAME")
	}
	if err := t.onlyQueue(flag, u.RawQuery); err != nil {
		return err
	}
	t.Shown, t.place = "memory", "memory"
	return nil
}

// memoryDB is memory.DB as a Database.
type memoryDB struct{ db *memory.DB }

// Queue ignores visible: the database was opened with it.
func (m memoryDB) Queue(_ context.Context, name string, _ time.Duration) (driver.Queue, error) {
	return m.db.Queue(name), nil
}

func (m memoryDB) Store(context.Context) (driver.Store, error) { return m.db.Store(), nil }

func (m memoryDB) Queues(context.Context) ([]string, error) {
	return nil, output.Usage("memory:// lists no queues")
}

func (m memoryDB) Close() error { return nil }

package cli

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/key"
)

// lentKeys counts the messages without a key of their own that --on-missing-key id gives one, and warns of the first.
type lentKeys struct {
	n    atomic.Int64
	warn sync.Once
}

// watch is the key function of a worker: own, and where that has no key and --on-missing-key says id, that of --key id.
func (l *lentKeys) watch(w config.Work, own key.Func, log *slog.Logger) key.Func {
	if w.OnMissingKey != "id" {
		return own
	}
	return func(m *semel.Message) (string, error) {
		raw, err := own(m)
		if !errors.Is(err, key.ErrMissing) {
			return raw, err
		}
		missing := err
		first := func(*semel.Message) (string, error) { return "", missing }
		if raw, err = key.First(first, key.ByID)(m); err != nil {
			return "", err
		}
		l.n.Add(1)
		l.warn.Do(func() {
			log.Warn("a message has no key, and is given one (--on-missing-key id); further ones are only counted", "key", raw, "why", missing,
				"hint", "a producer that sends twice makes two such keys: --key with what its messages have, or --on-missing-key fail")
		})
		return raw, nil
	}
}

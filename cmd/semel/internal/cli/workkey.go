package cli

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// lentKeys counts the messages without a key of their own that --on-missing-key id gives one, and warns of the first.
type lentKeys struct {
	n    atomic.Int64
	warn sync.Once
}

// watch is the key function of a worker: own, and where that has no key and --on-missing-key says id, that of --key id.
func (l *lentKeys) watch(w config.Work, own semel.KeyFunc, log *slog.Logger) semel.KeyFunc {
	if w.OnMissingKey != "id" {
		return own
	}
	return func(m *semel.Message) (string, error) {
		raw, err := own(m)
		if !errors.Is(err, semel.ErrNoKey) {
			return raw, err
		}
		missing := err
		first := func(*semel.Message) (string, error) { return "", missing }
		if raw, err = semel.KeyFirst(first, semel.KeyByID)(m); err != nil {
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

// warnOfBrokerID tells of keys that a redrive by the queue itself changes. doctor calls them dangerous.
func (s *shift) warnOfBrokerID() {
	if !s.queue.Features().Redrives {
		return
	}
	const hint = "--key json:/order_id or another field, or have all producers set idempotency-key (semel send does); semel doctor"
	const why = ": a redrive by the queue itself gives it another, and what was done would be done again"
	switch {
	case s.w.Key == "id":
		s.log.Warn("the key is the broker's id where a message has no idempotency-key"+why, "hint", hint)
	case s.w.OnMissingKey == "id":
		s.log.Warn("the key is the broker's id where a message has neither that of --key nor an idempotency-key"+why,
			"hint", "--on-missing-key fail, or have all producers set idempotency-key; semel doctor")
	}
}

package config

import (
	"cmp"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/key"
)

// HasPreviousKey reports that messages are claimed under the identity of before too.
func (w *Work) HasPreviousKey() bool { return w.PreviousKey != "" || w.PreviousConsumer != "" }

func (w *Work) checkPreviousKey() error {
	if !w.HasPreviousKey() {
		return nil
	}
	if w.PreviousKey != "" {
		if _, err := key.Parse(w.PreviousKey); err != nil {
			return output.Usage("--previous-key: %w", err).WithHint("give what --key was before, as it was given then")
		}
	}
	if v, err := w.Versions(); v != nil && err == nil {
		return output.Usage("--previous-key and --previous-consumer do not go with --strategy %s: an entity's latest version is kept under one key", w.Strategy).
			WithHint("stop all workers, change the key, and start them again: the first message of each entity then takes effect whatever its version")
	}
	return w.checkMeeting(w.Consumer)
}

// checkMeeting refuses a previous identity that is the present one of a consumer ("" = the queue's name, which is not known yet). It
// also refuses two recipes under one consumer of which one may give a message the key that the other gives another message: that
// one would be acked as done, without an effect. Keys with different numbers of parts never meet.
func (w *Work) checkMeeting(consumer string) error {
	if w.PreviousConsumer != "" && w.PreviousConsumer != consumer {
		return nil
	}
	if w.PreviousKey == "" || w.PreviousKey == w.Key {
		return output.Usage("--previous-key and --previous-consumer name what --key and --consumer are now").
			WithHint("give what was different before, or leave them away")
	}
	if now, before := parts(w.Key), parts(w.PreviousKey); now > 0 && before > 0 && now != before {
		return nil
	}
	return output.Usage("--previous-key %s: under one --consumer a key of --key may be the text of another message's key of --previous-key, "+
		"and that message would be taken for done", w.PreviousKey).
		WithHint("give --consumer a new name, and the present one (without --consumer: the queue's name) as --previous-consumer")
}

// parts is how many parts the keys of a recipe have; 0 if that differs or is unknown.
func parts(spec string) int {
	if list, ok := strings.CutPrefix(spec, "json:"); ok {
		return 1 + strings.Count(list, ",")
	}
	return 0
}

// Previous is the identity of before; nil = it did not change. queue is the name of the queue: the consumer's, where it has
// none of its own. A message that the previous recipe has no key for got the one that --on-missing-key says, as it does now.
func (w *Work) Previous(queue string) (*semel.PreviousKey, error) {
	if !w.HasPreviousKey() {
		return nil, nil //nolint:nilnil // nil means no change
	}
	consumer := cmp.Or(w.Consumer, queue)
	if err := w.checkMeeting(consumer); err != nil {
		return nil, err
	}
	previous, err := key.Parse(cmp.Or(w.PreviousKey, w.Key))
	if err != nil {
		return nil, Explain(err)
	}
	if w.OnMissingKey == "id" {
		previous = key.First(previous, key.ByID)
	}
	return &semel.PreviousKey{Consumer: cmp.Or(w.PreviousConsumer, consumer), Key: previous}, nil
}

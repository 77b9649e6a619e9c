package config

import (
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// HasFormer reports that messages are claimed under the identity of before too.
func (w *Work) HasFormer() bool { return w.FormerKey != "" || w.FormerConsumer != "" }

func (w *Work) checkFormer() error {
	if !w.HasFormer() {
		return nil
	}
	if w.FormerKey != "" {
		if _, err := semel.ParseKey(w.FormerKey); err != nil {
			return output.Usage("--former-key: %w", err).WithHint("give what --key was before, as it was given then")
		}
	}
	if (w.FormerKey == "" || w.FormerKey == w.Key) && (w.FormerConsumer == "" || w.FormerConsumer == w.Consumer) {
		return sameFormer()
	}
	if v, err := w.Versions(); v != nil && err == nil {
		return output.Usage("--former-key and --former-consumer do not go with --strategy %s: an entity's latest version is kept under one key", w.Strategy).
			WithHint("stop all workers, change the key, and start them again: the first message of each entity then takes effect whatever its version")
	}
	return nil
}

func sameFormer() error {
	return output.Usage("--former-key and --former-consumer name what --key and --consumer are now").
		WithHint("give what was different before, or leave them away")
}

// Former is the identity of before; nil = it did not change. queue is the name of the queue: the consumer's, where it has
// none of its own. A message that the former recipe has no key for got the one that --on-missing-key says, as it does now.
func (w *Work) Former(queue string) (*semel.Former, error) {
	if !w.HasFormer() {
		return nil, nil //nolint:nilnil // no change is one of the answers
	}
	spec, name := w.FormerKey, w.FormerConsumer
	if spec == "" {
		spec = w.Key
	}
	consumer := w.Consumer
	if consumer == "" {
		consumer = queue
	}
	if name == "" {
		name = consumer
	}
	if spec == w.Key && name == consumer {
		return nil, sameFormer()
	}
	key, err := semel.ParseKey(spec)
	if err != nil {
		return nil, Explain(err)
	}
	if w.OnMissingKey == "id" {
		key = semel.KeyFirst(key, semel.KeyByID)
	}
	return &semel.Former{Consumer: name, Key: key}, nil
}

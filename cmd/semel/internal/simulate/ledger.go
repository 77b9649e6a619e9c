package simulate

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// Effect is what a run leaves behind. Nothing makes it unique: a second run shows as a second one.
type Effect struct {
	// EffectKey is the same for every run of a message's key.
	EffectKey string    `json:"effect_key"`
	Key       string    `json:"key"`
	MessageID string    `json:"message_id"`
	Attempt   int       `json:"attempt"`
	Token     uint64    `json:"token"`
	PID       int       `json:"pid"`
	At        time.Time `json:"at"`
}

// Effect is the effect of a run.
func (w *Worker) Effect(a *semel.Attempt) Effect {
	return Effect{
		EffectKey: a.EffectKey(""), Key: a.Key.Raw, MessageID: a.ID, Attempt: a.Number, Token: a.Token, PID: os.Getpid(), At: time.Now().UTC(),
	}
}

// ledger takes effects that do not commit with the record.
type ledger interface {
	add(e Effect) error
	close() error
}

// file appends a line an effect: one write, so that lines of several processes do not mix.
type file struct{ f *os.File }

func openFile(path string) (file, error) {
	f, err := output.AppendFile(path)
	if err != nil {
		return file{}, fmt.Errorf("open the ledger: %w", err)
	}
	return file{f}, nil
}

func (l file) add(e Effect) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write the effect: %w", err)
	}
	return nil
}

func (l file) close() error { return l.f.Close() }

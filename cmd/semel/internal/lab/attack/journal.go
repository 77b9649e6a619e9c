package attack

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/ops"
	"github.com/semel-dev/semel/semeltest/verify"
)

// Journal is where the handler, or what it calls, writes its effects down: a file of JSON lines, or a query on a
// database, as `semel audit --effects` takes them. The zero value is none.
type Journal struct {
	// Place is a path or the URL of a database; Query goes with a URL.
	Place, Query string
}

// read calls each with every effect. A file that is not there has none: the handler may make it. What is wrong in it is
// an error of usage.
func (j Journal) read(ctx context.Context, each func(ops.Effect) error) error {
	err := open.Effects(ctx, j.Place, j.Query, strings.NewReader(""), each)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// effects are the lines as effects. texts lead from what a line may call a message (its key, its message id, its effect
// key) to its name in the attack; lines of others are passed over.
func (j Journal) effects(ctx context.Context, texts map[string]string) (out []verify.Effect, err error) {
	if j.Place == "" {
		return nil, nil
	}
	err = j.read(ctx, func(e ops.Effect) error {
		key, ok := texts[e.Key]
		if !ok && e.EffectKey != nil {
			key, ok = texts[hex.EncodeToString(e.EffectKey[:])]
		}
		if ok {
			out = append(out, verify.Effect{Name: strings.TrimSpace("journal " + e.Step), Message: key})
		}
		return nil
	})
	return out, err
}

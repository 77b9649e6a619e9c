package inbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

const day = 24 * time.Hour

func TestS1_43Methods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, in := t.Context(), New(memory.NewStore(), "orders", day)
		if _, err := in.GetProcessedResult(ctx, "1"); !errors.Is(err, ErrNotProcessed) {
			t.Errorf("the result of nothing: %v", err)
		}
		for _, result := range []string{"first", "second"} { // the first stays
			if err := in.MarkProcessed(ctx, "1", result); err != nil {
				t.Error(err)
			}
			if got, err := in.GetProcessedResult(ctx, "1"); err != nil || got != "first" {
				t.Errorf("result %v, %v", got, err)
			}
		}
		if err := in.Cleanup(ctx, time.Now()); err == nil {
			t.Error("everything may be forgotten at once")
		}
		time.Sleep(2 * day)
		if ok, err := in.IsProcessed(ctx, "1"); err != nil || !ok {
			t.Errorf("before the cleanup: %v, %v", ok, err)
		}
		if err := in.Cleanup(ctx, time.Now().Add(-day)); err != nil {
			t.Error(err)
		}
		if ok, err := in.IsProcessed(ctx, "1"); err != nil || ok {
			t.Errorf("after the cleanup: %v, %v", ok, err)
		}
	})
}

// TestS1_43Once: of three calls with one key one runs, and what it completed is processed. A message in progress is not, and cannot be
// marked.
func TestS1_43Once(t *testing.T) {
	in, runs := New(memory.NewStore(), "orders", day), 0
	for range 3 {
		got, _, err := in.Once(t.Context(), "1", func(ctx context.Context) (any, error) {
			runs++
			if ok, err := in.IsProcessed(ctx, "1"); ok || err != nil {
				t.Errorf("in progress: %v, %v", ok, err)
			}
			if err := in.MarkProcessed(ctx, "1", "other"); !errors.Is(err, semel.ErrBusy) {
				t.Errorf("marking what is in progress: %v", err)
			}
			return "done", nil
		})
		if err != nil || got != "done" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if ok, err := in.IsProcessed(t.Context(), "1"); runs != 1 || !ok || err != nil {
		t.Errorf("%d runs, processed: %v, %v", runs, ok, err)
	}
}

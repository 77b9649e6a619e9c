package semel_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// durable is a store that claims before runs alone.
type durable struct{ *memory.Store }

func (s durable) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.ClaimsAtCommit = false
	return f
}

// TestClaimAtCommitIsRefused: New names the field and the fix.
func TestClaimAtCommitIsRefused(t *testing.T) {
	queues := semel.InTx(func(context.Context, *memory.Effects, *semel.Attempt) error { return nil })
	probe := func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeUnknown, nil }
	for name, c := range map[string]struct {
		with  func(c *semel.Config)
		wants string
	}{
		"accepted":      {func(*semel.Config) {}, ""},
		"plain handler": {func(c *semel.Config) { c.Handler = semel.HandlerFunc(nil) }, "use InTx with *Statements"},
		"open transaction": {func(c *semel.Config) {
			c.Handler = semel.InTx(func(context.Context, *memory.Tx, *semel.Attempt) error { return nil })
		}, "use InTx with *Statements"},
		"batch": {func(c *semel.Config) {
			c.Handler = semel.InTxBatch(func(context.Context, *memory.Effects, []*semel.Attempt) error { return nil })
		}, "use InTx with *Statements"},
		"once":         {func(c *semel.Config) { c.Takeover = semel.Once }, "use Takeover Resume"},
		"probe":        {func(c *semel.Config) { c.Takeover, c.Probe = semel.Probe, probe }, "use Takeover Resume"},
		"versions":     {func(c *semel.Config) { c.Versions, c.Key = key.ByTimestamp("/at"), key.FromJSON("/id") }, "drop Versions"},
		"previous key": {func(c *semel.Config) { c.PreviousKey = &semel.PreviousKey{Consumer: "before"} }, "until PreviousKey is removed"},
		"uncounted":    {func(c *semel.Config) { c.Queue = uncounted{c.Queue} }, "leave ClaimAtCommit out"},
		"store":        {func(c *semel.Config) { c.Store = durable{c.Store.(*memory.Store)} }, "an SQL database"},
	} {
		db := memory.Open()
		cfg := semel.Config{Queue: db.Queue("orders"), Store: db.Store(), Handler: queues, ClaimAtCommit: true}
		c.with(&cfg)
		_, err := semel.New(cfg)
		var e *semel.ConfigError
		switch {
		case c.wants == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.wants != "" && (!errors.As(err, &e) || e.Field != "ClaimAtCommit" || !strings.Contains(e.Hint, c.wants)):
			t.Errorf("%s: %v, wanted the hint %q", name, err, c.wants)
		}
	}
}

// TestFM13ClaimAtCommit: two consumers run copies of one message at the same time. One of them makes the record with its
// effect, and the other's copy is replayed.
func TestFM13ClaimAtCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs, fenced atomic.Int32
		r := newFixture(t, semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
			runs.Add(1)
			if a.Token > 0 || !a.LeaseUntil().IsZero() || a.Store() != nil {
				fenced.Add(1)
			}
			time.Sleep(time.Second)
			tx.Append("effects", a.Key.Raw)
			return nil
		}), func(c *semel.Config) {
			c.ClaimAtCommit, c.Concurrency, c.Batch = true, 1, 1
			c.Key = func(*semel.Message) (string, error) { return "order", nil }
		})
		r.send(msg("a"), msg("b"))
		other, err := semel.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.start()
		s := r.after(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := r.store.Tables().Len("effects"); n != 1 || runs.Load() != 2 || fenced.Load() != 0 {
			t.Errorf("%d effects of %d runs, %d of them with a claim", n, runs.Load(), fenced.Load())
		}
		o := other.Summary()
		if s.Effects+o.Effects != 1 || s.Replayed+o.Replayed != 1 || s.Fenced+o.Fenced != 1 {
			t.Errorf("summaries %+v and %+v", s, o)
		}
		if rec := r.record("order"); rec.State != driver.Completed || rec.Token == 0 {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestFailuresOfClaimAtCommit: failures are counted from the first run on, and the last makes a dead letter.
func TestFailuresOfClaimAtCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []uint64
		r := newFixture(t, semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
			tokens = append(tokens, a.Token)
			tx.Append("effects", a.Key.Raw)
			return errors.New("failed")
		}), func(c *semel.Config) { c.ClaimAtCommit, c.MaxAttempts = true, 3 })
		r.send(msg("a"))
		r.start()
		s := r.after(time.Hour)
		if len(tokens) != 3 || tokens[0] != 0 || tokens[1] == 0 || tokens[2] <= tokens[1] || s.Dead != 1 || s.Retried != 2 || s.Fenced != 0 {
			t.Errorf("tokens %v, %+v", tokens, s)
		}
		if rec := r.record("a"); rec.State != driver.FailedState || rec.Failures != 3 || rec.Unknown {
			t.Errorf("record %+v", rec)
		}
		if n := r.store.Tables().Len("effects"); n != 0 {
			t.Errorf("%d effects of failed runs", n)
		}
	})
}

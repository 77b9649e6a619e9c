package adapter_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/examples/adapter"
	"github.com/semel-dev/semel/semeltest"
)

// clock moves when it is told to.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ns.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func TestStore(t *testing.T) {
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		c := newClock()
		s, err := adapter.OpenStore(filepath.Join(t.TempDir(), "records"), c.now)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return semeltest.StoreSetup{Store: s, Advance: c.advance}
	})
}

package adapter_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/examples/adapter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// clock moves only when a test moves it.
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

func TestQueue(t *testing.T) {
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		path := filepath.Join(t.TempDir(), "messages")
		open := func(t testing.TB) *adapter.Queue {
			q, err := adapter.OpenQueue(path, "orders")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.Close() })
			return q
		}
		return semeltest.QueueSetup{Queue: open(t), Restart: func(t testing.TB) driver.Queue { return open(t) }}
	})
}

// TestGuide finds every Go snippet of docs/adapter-guide.md in the code of this folder.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/adapter-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	snippets := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(snippets) == 0 {
		t.Fatal("the page has no snippets")
	}
	for _, m := range snippets {
		if !strings.Contains(code.String(), string(m[1])) {
			t.Errorf("not in the code:\n%s", m[1])
		}
	}
}

// TestPair runs consumers on both. The file queue has no dead letters: another queue keeps them.
func TestPair(t *testing.T) {
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		q, err := adapter.OpenQueue(filepath.Join(t.TempDir(), "messages"), "orders")
		if err != nil {
			t.Fatal(err)
		}
		s, err := adapter.OpenStore(filepath.Join(t.TempDir(), "records"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = q.Close(), s.Close() })
		return semeltest.PairSetup{Queue: deadletter.With(q, memory.NewQueue("dead")), Store: s}
	})
}

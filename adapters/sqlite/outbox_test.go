package sqlite

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/outbox"
	"github.com/semel-dev/semel/outbox/relaytest"
)

// TestOutboxRelay: late commits are left out, because the database has one writer at a time.
func TestOutboxRelay(t *testing.T) {
	relaytest.Run(t, func(t testing.TB) relaytest.Setup {
		db := openFor(t, Options{Visibility: relaytest.Visible})
		return relaytest.Setup{In: db.Queue("in"), Store: db.Store(), Outbox: db.Queue("outbox")}
	})
}

// hanging is a sender that never returns, before or after the other side has accepted.
type hanging struct {
	to       driver.Sender
	accepted bool
	mark     string // the file that marks it
}

func (h *hanging) Send(ctx context.Context, m ...driver.Message) error {
	if h.accepted {
		if err := h.to.Send(ctx, m...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(h.mark, nil, 0o600); err != nil {
		return err
	}
	select {}
}

// relayChild is a process that relays from the outbox of a file to a queue of another one; it hangs in its first send,
// or works.
func relayChild(ctx context.Context, db *DB, hangs, path string) error {
	to, err := Open(ctx, path+".to", Options{Create: true})
	if err != nil {
		return err
	}
	var sender driver.Sender = to.Queue("charges")
	if hangs != "relay" {
		sender = &hanging{to: sender, accepted: hangs == "after", mark: path + ".hangs"}
	}
	r, err := outbox.New(outbox.Config{From: db.Queue("outbox"), To: sender})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// TestS3_56_RelayKilledWhileItSends kills a relay process with SIGKILL in the middle of a send, before the other side has
// accepted and after. The next relay sends again, and the external call happens once, always under the same key.
func TestS3_56_RelayKilledWhileItSends(t *testing.T) {
	keys := map[string]int{}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")]++ // one call at a time
	}))
	defer service.Close()
	for hangs, copies := range map[string]int{"before": 1, "after": 2} {
		path := filepath.Join(t.TempDir(), "shop.db")
		db, to := openAt(t, path, Options{}), openAt(t, path+".to", Options{})
		send(t, db.Queue("orders"), driver.Message{ID: "order-1", Body: []byte("100")})
		consume(t, semel.Config{
			Queue: db.Queue("orders"), Store: db.Store(), Limit: 1,
			Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
				a.Emit(semel.Message{Queue: "outbox", Body: a.Body})
				return nil
			}),
		})
		first := process.StartTest(t, child("relay-"+hangs, path))
		waitFor(t, func() bool { _, err := os.Stat(path + ".hangs"); return err == nil })
		first.Kill()
		second := process.StartTest(t, child("relay", path))
		waitFor(t, func() bool { return must(db.Queue("outbox").Stats(t.Context()))(t).Empty() })
		second.Kill()
		s := consume(t, semel.Config{
			Queue: to.Queue("charges"), Store: to.Store(), Limit: copies,
			Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error { return charge(ctx, service.URL, a) }),
		})
		if left := must(to.Queue("charges").Stats(t.Context()))(t); s.Effects != 1 || int(s.Replayed) != copies-1 || !left.Empty() {
			t.Errorf("killed %s the acceptance: %+v of %d copies, left %+v", hangs, s, copies, left)
		}
	}
	if len(keys) != 1 {
		t.Errorf("two orders of one id were charged under %d keys: %v", len(keys), keys)
	}
	for key, calls := range keys {
		if key == "" || calls != 2 { // one in each database
			t.Errorf("%d calls under the key %q", calls, key)
		}
	}
}

func charge(ctx context.Context, url string, a *semel.Attempt) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", a.EffectKey("charge"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// consume runs a consumer to its limit.
func consume(t *testing.T, cfg semel.Config) semel.Summary {
	t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", err, ctx.Err())
	}
	return c.Summary()
}

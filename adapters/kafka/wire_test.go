package kafka

import (
	"context"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// proxied is a cluster of one broker, whose clients connect through a proxy.
func proxied(t *testing.T) (*kfake.Cluster, *server.Proxy, *Queue) {
	t.Helper()
	c := kafkatest.Start(t, kfake.NumBrokers(1))
	p, err := server.NewProxy(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	dial := kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.Addr())
	})
	return c, p, fresh(t, 1, Options{Client: kafkatest.Client(c, dial)})
}

// TestFM19_CommitResponseLost: the network fails between a commit and its response. The position is committed again, and nothing
// that was settled comes again.
func TestFM19_CommitResponseLost(t *testing.T) {
	c, p, q := proxied(t)
	send(t, q, 0, 10)
	ds := receive(t, q, 10)
	p.LoseResponses(server.ToServer, "\x00\x08\x00\x0a", 2) // requests OffsetCommit of version 10
	settle(t, q, driver.Ack, driver.Applied, ds...)
	committed(t, c, q, 0, 10)
	waitFor(t, func() bool { return p.Lost() == 2 })
	send(t, q, 10, 11)
	if d := receive(t, q, 1)[0]; d.ID != "10" {
		t.Errorf("message %s came again", d.ID)
	} else {
		settle(t, q, driver.Ack, driver.Applied, d)
	}
	committed(t, c, q, 0, 11)
}

// TestFM11_SendResponseLost: the network fails between a message and its acknowledgement. The client sends it again, and the
// broker keeps it once.
func TestFM11_SendResponseLost(t *testing.T) {
	_, p, q := proxied(t)
	p.LoseResponses(server.ToServer, "lost-and-found", 1)
	if err := q.Send(t.Context(), driver.Message{ID: "lost-and-found"}); err != nil {
		t.Fatal(err)
	}
	if p.Lost() != 1 {
		t.Fatal("no response was lost")
	}
	settle(t, q, driver.Ack, driver.Applied, receive(t, q, 1)...)
	empty(t, q)
}

// TestFM35_NetworkCut: the connections are cut while messages are in flight. The queue goes on, and nothing is lost.
func TestFM35_NetworkCut(t *testing.T) {
	_, p, q := proxied(t)
	send(t, q, 0, 100)
	got := map[string]bool{}
	for len(got) < 100 {
		d := receive(t, q, 1)[0]
		got[d.ID] = true
		if len(got)%30 == 0 {
			p.Cut()
		}
		if _, err := q.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	empty(t, q)
}

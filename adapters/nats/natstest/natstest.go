// Package natstest runs a NATS server with JetStream inside of a test. Programs that use the adapter do not link the server:
// only this package imports it.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options of a server. The zero value syncs to disk every two minutes, as servers do.
type Options struct {
	// SyncAlways makes the server write what it acknowledges to disk first.
	SyncAlways bool
	// Port is the port of 127.0.0.1; 0 = a free one. Monitor has the server listen for its monitoring page, too.
	Port    int
	Monitor bool
	// Dir is the directory of the data; "" = one of the test's own.
	Dir string
	// NoJetStream leaves JetStream off. Users are the users; none = everybody is let in.
	NoJetStream bool
	Users       []*server.User
}

// Start starts a server, which ends with the test.
func Start(tb testing.TB, o Options) *server.Server {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	opts := &server.Options{
		Host: "127.0.0.1", Port: o.Port, JetStream: !o.NoJetStream, StoreDir: o.Dir, SyncAlways: o.SyncAlways, NoLog: true, NoSigs: true,
		Users: o.Users,
	}
	if o.Monitor {
		opts.HTTPHost, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT
	}
	s, err := server.NewServer(opts)
	if err != nil {
		tb.Fatalf("make a NATS server: %v", err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		tb.Fatal("the NATS server does not start")
	}
	return s
}

// Connect connects to a server; the connection ends with the test.
func Connect(tb testing.TB, url string, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}, opts...)...)
	if err != nil {
		tb.Fatalf("connect to NATS: %v", err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

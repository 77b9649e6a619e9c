// Package kfake runs the fake of Kafka (kfake of franz-go) as a process of its own, which tests kill and start again on its data.
package kfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// environment carries port and directory of a broker process.
const environment = "SEMEL_KFAKE"

// MainIfBroker runs a broker until the process is killed, if the process was started to be one. It is the first call of a
// TestMain.
func MainIfBroker() {
	port, dir, ok := strings.Cut(os.Getenv(environment), " ")
	if !ok {
		return
	}
	n, _ := strconv.Atoi(port)
	_, err := kfake.NewCluster(kfake.Ports(n), kfake.DataDir(dir), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// Broker is a cluster of one broker in a process. It survives that its process is killed, but not that of its machine.
type Broker struct {
	port    int
	dir     string
	process *process.Process
}

// Start starts a broker on a free port, which is killed when the test ends.
func Start(t testing.TB) *Broker {
	t.Helper()
	b, err := New(t.Context(), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// New starts a broker on a free port. Close ends it.
func New(ctx context.Context, o server.Options) (*Broker, error) {
	port, err := server.FreePort()
	if err != nil {
		return nil, err
	}
	b := &Broker{port: port}
	if b.dir, err = os.MkdirTemp(o.Dir, "semel-kfake-"); err != nil {
		return nil, err
	}
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, nil
}

// Start starts the broker again on its data.
func (b *Broker) Start(ctx context.Context) error {
	ready := make(chan struct{})
	cmd := process.Self(environment + "=" + strconv.Itoa(b.port) + " " + b.dir)
	cmd.Stdout = &process.Output{Keep: 1, Each: func(line string) {
		if line == "ready" {
			close(ready)
		}
	}}
	cmd.Stderr = os.Stderr
	var err error
	if b.process, err = process.Start(cmd); err != nil {
		return err
	}
	select {
	case <-ready:
		return nil
	case <-b.process.Done():
		return fmt.Errorf("the broker ended: %w", b.process.Wait())
	case <-ctx.Done():
		return errors.Join(ctx.Err(), b.Kill())
	}
}

// Stop is Kill: the fake has no orderly end.
func (b *Broker) Stop(server.Mode) error { return b.Kill() }

// Kill ends the process with SIGKILL.
func (b *Broker) Kill() error {
	b.process.Kill()
	return nil
}

// Close ends the broker and removes its data.
func (b *Broker) Close() error { return errors.Join(b.Kill(), os.RemoveAll(b.dir)) }

// URL is the address of the broker.
func (b *Broker) URL() string { return b.Brokers()[0] }

// Brokers are the addresses for clients.
func (b *Broker) Brokers() []string {
	return []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))}
}

// Client are options of a client whose sessions are short.
func Client(brokers []string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.SessionTimeout(2 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond)}
}

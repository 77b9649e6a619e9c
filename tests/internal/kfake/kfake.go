// Package kfake runs the fake of Kafka (kfake of franz-go) as a process of its own, which tests kill and start again on its data.
package kfake

import (
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
	t       testing.TB
	port    int
	dir     string
	process *process.Process
}

// Start starts a broker on a free port, which is killed when the test ends.
func Start(t testing.TB) *Broker {
	t.Helper()
	port, err := server.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{t: t, port: port, dir: t.TempDir()}
	b.start()
	t.Cleanup(func() { b.process.Kill() })
	return b
}

func (b *Broker) start() {
	b.t.Helper()
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
		b.t.Fatal(err)
	}
	select {
	case <-ready:
	case <-b.process.Done():
		b.t.Fatalf("the broker ends: %v", b.process.Wait())
	}
}

// Restart kills the broker with SIGKILL, and starts it again on its data.
func (b *Broker) Restart() {
	b.t.Helper()
	b.process.Kill()
	b.start()
}

// Brokers are the addresses for clients.
func (b *Broker) Brokers() []string {
	return []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))}
}

// Client are options of a client whose sessions are short.
func Client(brokers []string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.SessionTimeout(2 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond)}
}

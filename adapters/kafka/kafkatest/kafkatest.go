// Package kafkatest runs a fake of Kafka (kfake of franz-go) inside of a test. Programs that use the adapter do not link the
// fake: only this package imports it.
package kafkatest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Start starts a fake cluster of three brokers, which ends with the test. Sessions of groups may be short.
func Start(tb testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	tb.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.GroupMinSessionTimeout(100 * time.Millisecond), kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}),
	}, opts...)...)
	if err != nil {
		tb.Fatalf("start a fake of Kafka: %v", err)
	}
	tb.Cleanup(c.Close)
	return c
}

// Client are the options of a client that connects to the cluster.
func Client(c *kfake.Cluster, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.HeartbeatInterval(100 * time.Millisecond)}, more...)
}

//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
)

// TestScriptsKafka runs testdata/kafka on a fake cluster that wants a user. In each script KAFKA is its URL, TOPIC a name for a
// topic of its own, and Q the URL of that.
func TestScriptsKafka(t *testing.T) {
	c := kafkatest.Start(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "shop", "s3cret"))
	testscript.Run(t, testscript.Params{
		Dir: "testdata/kafka", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			url := "kafka://shop@" + strings.Join(c.ListenAddrs(), ",")
			topic := "orders-" + strings.ReplaceAll(e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:], ".", "-")
			e.Setenv("KAFKA_PASSWORD", "s3cret")
			e.Setenv("KAFKA", url)
			e.Setenv("TOPIC", topic)
			e.Setenv("Q", url+"?queue="+topic)
			return nil
		},
	})
}

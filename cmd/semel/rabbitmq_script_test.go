//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsRabbitMQ runs testdata/rabbitmq. In each script RABBITMQ is the URL of the shared server, NAME a name for a queue of
// its own, which is deleted at the end, and Q the URL of that. LIMITED is the URL of a queue with a delivery limit. Where no server can be had the test is left out.
func TestScriptsRabbitMQ(t *testing.T) {
	shared := server.Shared(t, "rabbitmq")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/rabbitmq", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			name := fmt.Sprintf("semel-script-%d-%s", os.Getpid(), e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:])
			e.Setenv("RABBITMQ", shared)
			e.Setenv("NAME", name)
			e.Setenv("Q", shared+"?queue="+name)
			e.Setenv("LIMITED", shared+"?queue="+name+"-limited")
			e.Defer(func() {
				for _, end := range []string{"", "-limited"} {
					if err := open.RemoveRabbitMQ(context.Background(), shared+"?queue="+name+end); err != nil {
						fmt.Fprintln(os.Stderr, err)
					}
				}
			})
			return declareLimited(shared, name+"-limited")
		},
	})
}

// declareLimited declares a queue that drops messages after 20 deliveries, as RabbitMQ 4 does by default.
func declareLimited(url, name string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20})
	}
	return errors.Join(err, conn.Close())
}

//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsRabbitMQ runs testdata/rabbitmq. In each script RABBITMQ is the URL of the shared server, NAME a name for a queue of
// its own, which is deleted at the end, and Q the URL of that. Where no server can be had the test is left out.
func TestScriptsRabbitMQ(t *testing.T) {
	shared := server.Shared(t, "rabbitmq")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/rabbitmq", Cmds: commands(), RequireUniqueNames: true, Deadline: time.Now().Add(10 * time.Minute),
		Setup: func(e *testscript.Env) error {
			name := fmt.Sprintf("semel-script-%d-%s", os.Getpid(), e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:])
			e.Setenv("RABBITMQ", shared)
			e.Setenv("NAME", name)
			e.Setenv("Q", shared+"?queue="+name)
			e.Defer(func() {
				if err := open.RemoveRabbitMQ(context.Background(), shared+"?queue="+name); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
			return nil
		},
	})
}

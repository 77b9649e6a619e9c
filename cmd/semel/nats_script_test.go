//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsNATS runs testdata/nats. In each script NATS is the URL of the shared server, STREAM a name for a stream of its own,
// which is removed at the end, and Q the URL of that. Where no server can be had the test is left out.
func TestScriptsNATS(t *testing.T) {
	shared := server.Shared(t, "nats")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/nats", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			stream := fmt.Sprintf("SEMEL_SCRIPT_%d_%s", os.Getpid(), strings.ReplaceAll(e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:], ".", "_"))
			e.Setenv("NATS", shared)
			e.Setenv("STREAM", stream)
			e.Setenv("Q", shared+"?queue="+stream)
			e.Defer(func() {
				if err := open.RemoveNATS(context.Background(), shared+"?queue="+stream); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
			return nil
		},
	})
}
